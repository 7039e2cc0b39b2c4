/* store/lmdb/lmdb_seal.h - the checksums of an entry in LMDB, which has none of its own. Each value
 * stands there with 8 bytes behind it: u32 checksum of the key, u32 checksum of the value, seeded
 * with that of the key. So an altered key is told from an altered value, and a value never passes
 * under another key. No state, any thread. */
#ifndef CN_STORE_LMDB_LMDB_SEAL_H
#define CN_STORE_LMDB_LMDB_SEAL_H

#include "core/text/str.h"
#include "store/record/checksum.h"
#include "store/record/little_endian.h"

#define CN_LMDB_SEAL_BYTES 8

enum cn_lmdb_seal {
    CN_LMDB_SEAL_WHOLE,
    CN_LMDB_SEAL_VALUE, /* the key is right, the value is not */
    CN_LMDB_SEAL_KEY,   /* the key is altered, or there is no seal */
};

static inline void
cn_lmdb_seal(struct cn_str key, struct cn_str value, void *out)
{
    const uint64_t sum = cn_checksum(key.ptr, key.len, 0);

    put32((unsigned char *)out, (uint32_t)sum);
    put32((unsigned char *)out + 4, (uint32_t)cn_checksum(value.ptr, value.len, sum));
}

/* Checks the value that stands in LMDB with its seal. */
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
    return memcmp(ours + 4, sealed.ptr + len + 4, 4) == 0 ? CN_LMDB_SEAL_WHOLE : CN_LMDB_SEAL_VALUE;
}

#endif
