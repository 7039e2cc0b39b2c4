/* store/journal/journal_ledger.h - the format of a ledger: which transactions a journal file must
 * have, and which keys are in them.
 *
 * ledger.0 and ledger.1 lie beside journal.0 and journal.1. Each commit appends an entry to the
 * ledger after the journal has the transaction. So a damaged, truncated or missing journal file
 * does not take with it the knowledge of what it held: the checksums in the ledger tell which
 * transactions are whole, and the hashes of keys tell whose newest value is gone.
 *
 * A file is a header of 64 bytes, followed by entries. All numbers are little-endian:
 *   file    magic "CNL1", u32 format, u64 number of the journal's first transaction, u64 its seed,
 *           u64 the boot of the machine in which it was begun, zeros, u64 checksum
 *   entry   u64 number of the transaction, u64 its offset in the journal, u64 its bytes, u64 its
 *           checksum, u64 version of LMDB (cn_lmdb_version) when it was appended, u32 number of
 *           keys, u32 zero, u64 hash of each key, u64 checksum
 * The checksum of an entry is seeded with the first transaction's number and the journal's seed
 * (cn_ledger_seed), so an entry of another use of the file does not pass. No state, any thread. */
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

/* The seed of the checksums of all entries in one use of the file. */
uint64_t cn_ledger_seed(uint64_t first, uint64_t journal_seed);
void cn_ledger_put_header(char out[CN_LEDGER_HEADER_BYTES], uint64_t first, uint64_t journal_seed,
                          uint64_t boot);
/* Reads a file's header. False: it is damaged or has another format. */
bool cn_ledger_get_header(struct cn_str file, uint64_t *first, uint64_t *journal_seed,
                          uint64_t *boot);
/* A number for this boot of the machine; 0 if the kernel does not say. After a power failure the
 * ledger may miss entries that the kernel had not written yet; a changed number tells that case
 * from damage. */
uint64_t cn_ledger_boot(void);

/* Makes an entry in `out`: begin empties `out`, then each key is added, then the entry is ended
 * with its checksum. If memory runs out, out->failed is set. */
void cn_ledger_begin(struct cn_buf *out, const struct cn_ledger_entry *entry);
void cn_ledger_add_key(struct cn_buf *out, struct cn_str key);
void cn_ledger_end(struct cn_buf *out, uint64_t seed);

/* The size of an entry with this number of keys. */
uint64_t cn_ledger_entry_bytes(uint32_t n_keys);
/* Is a whole entry of this number at this offset? Reads nothing behind `file.len`. */
bool cn_ledger_look(struct cn_str file, uint64_t at, uint64_t number, uint64_t seed,
                    struct cn_ledger_entry *out);
/* The hash of a key. It has no secret, unlike the hash of the index, because other processes
 * compare it later. */
uint64_t cn_ledger_hash(struct cn_str key);
uint64_t cn_ledger_hash_at(const struct cn_ledger_entry *entry, uint32_t i);

#endif
