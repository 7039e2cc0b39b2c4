/* worker/batch/idempotency.c - what identifies a client's retry: its key, and what was asked under
 * it.
 *
 * BLAKE2b (libsodium's generichash) without a secret: 8 bytes of a key, since only the keys of one
 * sequence are compared, a few at a time, so that two never meet by chance; and 8 bytes of a
 * request, which only have to tell a retry from a mistake. Rows without key and number cost
 * nothing. Owned by the worker's one thread.
 */
#include <sodium/crypto_generichash.h>
#include <string.h>

#include "worker/worker_priv.h"

#define FLAGS_HASHED (CN_ROW_START | CN_ROW_END | CN_ROW_EXPLAIN)

/* Hashes the string's length before its bytes, so that two lists of strings that differ only in
 * where one string ends have different hashes. */
static void
hash_str(crypto_generichash_state *state, struct cn_str text)
{
    uint64_t len = text.len;
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++, len >>= 8)
        bytes[i] = (unsigned char)len;
    crypto_generichash_update(state, bytes, sizeof(bytes));
    if (text.len)
        crypto_generichash_update(state, (const unsigned char *)text.ptr, text.len);
}

static uint64_t
hash_request(const struct cn_row *row)
{
    unsigned char flags = (unsigned char)(row->flags & FLAGS_HASHED);
    unsigned char out[crypto_generichash_BYTES_MIN];
    crypto_generichash_state state;
    uint64_t hash = 0;

    crypto_generichash_init(&state, NULL, 0, sizeof(out));
    crypto_generichash_update(&state, &flags, 1);
    for (uint32_t i = 0; i < row->n_parts; i++) {
        hash_str(&state, row->parts[i].name);
        hash_str(&state, row->parts[i].content_type);
        hash_str(&state, row->parts[i].data);
    }
    crypto_generichash_final(&state, out, sizeof(out));
    for (unsigned i = 0; i < sizeof(hash); i++)
        hash |= (uint64_t)out[i] << (8 * i);
    return hash;
}

void
cn_batch_entry_hash(struct cn_batch_entry *entry)
{
    const struct cn_row *row = entry->row;
    const bool keyed = row->idempotency_key.len != 0;
    unsigned char hash[crypto_generichash_BYTES_MIN]; /* 16; its first bytes are kept */

    entry->request_hash = 0;
    memset(entry->key_hash, 0, sizeof(entry->key_hash));
    if (!(row->flags & CN_ROW_STATEFUL) || !(keyed || (row->flags & CN_ROW_NUMBERED)))
        return;
    if (keyed) {
        crypto_generichash(hash, sizeof(hash), (const unsigned char *)row->idempotency_key.ptr,
                           row->idempotency_key.len, NULL, 0);
        memcpy(entry->key_hash, hash, sizeof(entry->key_hash));
    }
    entry->request_hash = hash_request(row);
}
