/* store/journal/journal.h - the bytes of a journal: what transactions changed, in the order of
 * their commits.
 *
 * A file is a header of 64 bytes and transactions behind it; all numbers are little-endian, all
 * parts multiples of 8 bytes:
 *   file         magic "CNJ1", u32 format, u64 number of the first transaction, zeros, u64 checksum
 *   transaction  magic "CNJT", u32 entries, u64 number, u64 bytes (these 32 among them), u64 checksum
 *   entry        u64 value's length, u32 stored, u16 key's length, u16 flags, key, value, padding
 * A checksum (XXH3) covers the whole of its part and is seeded with that of the part before it, so
 * that what an earlier use of the file left behind never passes for a successor. A transaction that
 * is torn or altered is the end. No state, any thread.
 */
#ifndef CN_STORE_JOURNAL_JOURNAL_H
#define CN_STORE_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_JOURNAL_HEADER_BYTES 64
#define CN_JOURNAL_TXN_BYTES 32

enum cn_journal_flag {
    CN_JOURNAL_REMOVED = 1, /* the key is gone; no value */
    CN_JOURNAL_NEW = 2,     /* the key is told to LMDB in the same commit */
};

struct cn_journal_entry {
    struct cn_str key, value; /* borrowed from the file's bytes */
    uint32_t stored;          /* what LMDB's value of this key takes there, as its writer counts */
    uint16_t flags;
};

/* A transaction that was looked at. */
struct cn_journal_txn {
    uint64_t bytes, seed; /* of the one behind it */
    uint32_t n_entries;
};

enum cn_journal_found {
    CN_JOURNAL_NONE, /* nothing that calls itself this transaction */
    CN_JOURNAL_COMPLETE,
    CN_JOURNAL_TORN, /* its header or a part of it */
};

/* `first`: the number that the first transaction will have. Returns its seed. */
uint64_t cn_journal_put_header(char out[CN_JOURNAL_HEADER_BYTES], uint64_t first);
/* False: no header of this format, or a damaged one. */
bool cn_journal_get_header(struct cn_str file, uint64_t *first, uint64_t *seed);

/* Empties `txn` and leaves room for the header. A buffer that failed says so in its field. */
void cn_journal_begin(struct cn_buf *txn);
void cn_journal_add(struct cn_buf *txn, const struct cn_journal_entry *entry);
/* Ends a transaction: fills in the header. Returns the seed of the next one. */
uint64_t cn_journal_seal(struct cn_buf *txn, uint32_t n_entries, uint64_t number, uint64_t seed);

/* Is there transaction `number` at this offset? All its lengths are checked when it is whole. Reads
 * nothing behind `file.len`. */
enum cn_journal_found cn_journal_look(struct cn_str file, uint64_t at, uint64_t number,
                                      uint64_t seed, struct cn_journal_txn *out);
/* How many entries a whole transaction has, the first CN_JOURNAL_TXN_BYTES behind its begin. */
uint32_t cn_journal_txn_entries(const char *txn);
uint64_t cn_journal_txn_bytes(const char *txn);
uint64_t cn_journal_txn_sum(const char *txn);
/* The entry at this place of a whole transaction; returns the bytes it takes. */
uint64_t cn_journal_entry_at(const char *at, struct cn_journal_entry *out);
/* What an entry takes, by the lengths of its key and value. */
uint64_t cn_journal_entry_bytes(const struct cn_journal_entry *entry);

#endif
