/* store/lmdb/lmdb_seal.h - the seal of an entry in LMDB, which has no checksums of its own. Behind
 * each value are 8 bytes: a u32 checksum of the key, and a u32 checksum of the value, seeded with
 * the key's. So an altered key can be told from an altered value, and a value under a wrong key is
 * noticed. No state, any thread. */
#ifndef CN_STORE_LMDB_LMDB_SEAL_H
#define CN_STORE_LMDB_LMDB_SEAL_H

#include "core/text/str.h"
#include "store/record/checksum.h"
#include "store/record/little_endian.h"

#define CN_LMDB_SEAL_BYTES 8

enum cn_lmdb_seal {
    CN_LMDB_SEAL_INTACT,
    CN_LMDB_SEAL_VALUE, /* the key is right and the value is altered */
    CN_LMDB_SEAL_KEY,   /* the key is altered, or there is no seal */
};

/* Writes the seal of an entry to `out`, CN_LMDB_SEAL_BYTES long. */
static inline void
cn_lmdb_seal(struct cn_str key, struct cn_str value, void *out)
{
    const uint64_t sum = cn_checksum(key.ptr, key.len, 0);

    put32((unsigned char *)out, (uint32_t)sum);
    put32((unsigned char *)out + 4, (uint32_t)cn_checksum(value.ptr, value.len, sum));
}

/* Checks a value as it is in LMDB, with its seal. */
static inline enum cn_lmdb_seal
cn_lmdb_seal_check(struct cn_str key, struct cn_str sealed)
{
    const size_t len = sealed.len - CN_LMDB_SEAL_BYTES;
    unsigned char ours[CN_LMDB_SEAL_BYTES];

    if (sealed.len < CN_LMDB_SEAL_BYTES)
        return CN_LMDB_SEAL_KEY;
    cn_lmdb_seal(key, (struct cn_str){sealed.ptr, len}, ours);
    if (memcmp(ours, sealed.ptr + len, 4) != 0)
        return CN_LMDB_SEAL_KEY;
    return memcmp(ours + 4, sealed.ptr + len + 4, 4) == 0 ? CN_LMDB_SEAL_INTACT
                                                          : CN_LMDB_SEAL_VALUE;
}

#endif
