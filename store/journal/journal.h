/* store/journal/journal.h - the format of a journal file: what transactions changed, in the order
 * of their commits.
 *
 * A file is a header of 64 bytes, followed by transactions. All numbers are little-endian, and each
 * part is a multiple of 8 bytes long:
 *   file         magic "CNJ1", u32 format, u64 number of the first transaction, zeros,
 *                u64 checksum
 *   transaction  magic "CNJT", u32 number of entries, u64 number of the transaction, u64 size in
 *                bytes (including this head), u64 checksum; then the entries
 *   entry        u64 length of the value, u32 estimated size in LMDB (`stored`), u16 length of the
 *                key, u16 flags; then the key, the value, and padding
 *
 * A checksum (XXH3) covers its whole part and is seeded with the checksum of the part before it.
 * What an earlier use of the file left behind is therefore never taken for the next transaction. A
 * transaction that is torn or altered ends the journal. No state, any thread. */
#ifndef CN_STORE_JOURNAL_JOURNAL_H
#define CN_STORE_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_JOURNAL_HEADER_BYTES 64
#define CN_JOURNAL_TXN_BYTES 32

enum cn_journal_flag {
    CN_JOURNAL_REMOVED = 1, /* the key was removed; there is no value */
    CN_JOURNAL_NEW = 2,     /* the key is new: the same commit lists it in LMDB */
};

struct cn_journal_entry {
    struct cn_str key, value; /* borrowed from the file's bytes */
    /* the room that the key's value in LMDB takes, as the writer estimated it */
    uint32_t stored;
    uint16_t flags;
};

/* What cn_journal_look found. */
struct cn_journal_txn {
    uint64_t bytes, seed; /* of this transaction; the seed of the next one */
    uint32_t n_entries;
};

enum cn_journal_found {
    CN_JOURNAL_NONE, /* no transaction with this number is here */
    CN_JOURNAL_COMPLETE,
    CN_JOURNAL_TORN, /* it begins here and is not whole */
};

/* Makes a file's header. `first` is the number that its first transaction will have. Returns the
 * seed of that transaction. */
uint64_t cn_journal_put_header(char out[CN_JOURNAL_HEADER_BYTES], uint64_t first);
/* Reads a file's header. False: it is damaged or has another format. */
bool cn_journal_get_header(struct cn_str file, uint64_t *first, uint64_t *seed);

/* Begins a transaction: empties `txn` and leaves room for the head. If memory runs out, txn->failed
 * is set. */
void cn_journal_begin(struct cn_buf *txn);
/* Appends an entry; key and value are copied. */
void cn_journal_add(struct cn_buf *txn, const struct cn_journal_entry *entry);
/* Ends a transaction by filling in its head. Returns the seed of the next one. */
uint64_t cn_journal_seal(struct cn_buf *txn, uint32_t n_entries, uint64_t number, uint64_t seed);

/* Is transaction `number` at this offset? If it is whole, all lengths in it have been checked, and
 * its entries can be read without further checks. Reads nothing behind `file.len`. */
enum cn_journal_found cn_journal_look(struct cn_str file, uint64_t at, uint64_t number,
                                      uint64_t seed, struct cn_journal_txn *out);
/* The number of entries, the size and the checksum of a whole transaction, from its head. Its first
 * entry is CN_JOURNAL_TXN_BYTES behind its beginning. */
uint32_t cn_journal_txn_entries(const char *txn);
uint64_t cn_journal_txn_bytes(const char *txn);
uint64_t cn_journal_txn_sum(const char *txn);
/* Reads the entry at this address in a whole transaction. Returns the bytes that it takes. */
uint64_t cn_journal_entry_at(const char *at, struct cn_journal_entry *out);
/* The bytes that an entry takes in the file, from the lengths of its key and value. */
uint64_t cn_journal_entry_bytes(const struct cn_journal_entry *entry);

#endif
