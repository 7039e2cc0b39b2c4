/* store/journal/journal_ledger.h - which transactions a file of the journal must have, and of which
 * keys.
 *
 * ledger.0 and ledger.1 stand beside journal.0 and journal.1. Each commit appends an entry to the
 * ledger after the journal has the transaction. So a damaged, cut or missing journal cannot take
 * the knowledge with it of what stood there: the checksums of the entries tell which transactions
 * are whole, and the hashes of keys tell whose newest value is gone.
 *
 * A file is a header of 64 bytes and entries behind it; all numbers are little-endian:
 *   file    magic "CNL1", u32 format, u64 number of the journal's first transaction, u64 its seed,
 *           u64 which boot of the machine it was begun in, zeros, u64 checksum
 *   entry   u64 number, u64 offset in the journal, u64 bytes there, u64 its checksum, u64 version of
 *           LMDB (cn_lmdb_version) when it was appended, u32 keys, u32 zero, u64 hash of each key,
 *           u64 checksum, seeded with the first two of them
 * No state, any thread.
 */
#ifndef CN_STORE_JOURNAL_JOURNAL_LEDGER_H
#define CN_STORE_JOURNAL_JOURNAL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_LEDGER_HEADER_BYTES 64

struct cn_ledger_entry {
    uint64_t number, at, bytes, sum, version;
    uint32_t n_keys;
    const char *hashes; /* borrowed: 8 bytes a key */
};

/* Of the entries. */
uint64_t cn_ledger_seed(uint64_t first, uint64_t journal_seed);
void cn_ledger_put_header(char out[CN_LEDGER_HEADER_BYTES], uint64_t first, uint64_t journal_seed,
                          uint64_t boot);
/* False: not a header of this format, or a damaged one. */
bool cn_ledger_get_header(struct cn_str file, uint64_t *first, uint64_t *journal_seed,
                          uint64_t *boot);
/* A number for this boot of the machine; 0 where the kernel does not say. */
uint64_t cn_ledger_boot(void);

/* Begins an entry in an empty `out`, takes its keys one by one, and ends it. */
void cn_ledger_begin(struct cn_buf *out, const struct cn_ledger_entry *entry);
void cn_ledger_add_key(struct cn_buf *out, struct cn_str key);
void cn_ledger_end(struct cn_buf *out, uint64_t seed);

/* What an entry of so many keys takes. */
uint64_t cn_ledger_entry_bytes(uint32_t n_keys);
/* Is there a whole entry of this number at this offset? Reads nothing behind `file.len`. */
bool cn_ledger_look(struct cn_str file, uint64_t at, uint64_t number, uint64_t seed,
                    struct cn_ledger_entry *out);
/* Not keyed, unlike the index's: it outlives the process. */
uint64_t cn_ledger_hash(struct cn_str key);
uint64_t cn_ledger_hash_at(const struct cn_ledger_entry *entry, uint32_t i);

#endif
