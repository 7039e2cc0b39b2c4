/* store/journal/journal.c - reads and writes the format of journal.h. No state, any thread.
 *
 * A transaction is built in a buffer: cn_journal_begin leaves room for its head, cn_journal_add
 * appends entries, and cn_journal_seal fills in the head when the number of the transaction and the
 * seed are known. So a commit is a single write of one piece.
 *
 * A reader must expect any bytes, because the file may be torn, damaged, or still hold an earlier
 * use. cn_journal_look therefore checks the checksum first and then each length of each entry. The
 * functions that take a `const char *` of a transaction or an entry check nothing and are for bytes
 * that cn_journal_look found whole. */
#include "store/journal/journal.h"

#include <string.h>

#include "store/record/checksum.h"
#include "store/record/little_endian.h"
#include "store/store.h"

#define FILE_MAGIC 0x314a4e43u /* "CNJ1" */
#define TXN_MAGIC 0x544a4e43u  /* "CNJT" */
#define FORMAT 1
#define ENTRY_BYTES 16
#define CHECKSUM_BYTES 8
#define ALL_FLAGS (CN_JOURNAL_REMOVED | CN_JOURNAL_NEW)

/* Rounds up to a multiple of 8 bytes, so that numbers in the mapping are aligned and the index can
 * hold an offset / 8. */
static uint64_t
padded(uint64_t bytes)
{
    return (bytes + 7) & ~(uint64_t)7;
}

uint64_t
cn_journal_put_header(char out[CN_JOURNAL_HEADER_BYTES], uint64_t first)
{
    uint64_t sum;

    memset(out, 0, CN_JOURNAL_HEADER_BYTES);
    put32(out, FILE_MAGIC);
    put32(out + 4, FORMAT);
    put64(out + 8, first);
    sum = cn_checksum(out, CN_JOURNAL_HEADER_BYTES - CHECKSUM_BYTES, 0);
    put64(out + CN_JOURNAL_HEADER_BYTES - CHECKSUM_BYTES, sum);
    return sum;
}

bool
cn_journal_get_header(struct cn_str file, uint64_t *first, uint64_t *seed)
{
    const size_t summed = CN_JOURNAL_HEADER_BYTES - CHECKSUM_BYTES;

    if (file.len < CN_JOURNAL_HEADER_BYTES || get32(file.ptr) != FILE_MAGIC ||
        get32(file.ptr + 4) != FORMAT)
        return false;
    *first = get64(file.ptr + 8);
    *seed = get64(file.ptr + summed);
    return *first > 0 && *seed == cn_checksum(file.ptr, summed, 0);
}

void
cn_journal_begin(struct cn_buf *txn)
{
    static const char zeros[CN_JOURNAL_TXN_BYTES];

    cn_buf_reset(txn);
    cn_buf_append(txn, zeros, sizeof(zeros));
}

void
cn_journal_add(struct cn_buf *txn, const struct cn_journal_entry *entry)
{
    static const char zeros[8];
    const uint64_t len = entry->key.len + entry->value.len;
    const uint32_t key_and_flags = (uint32_t)entry->key.len | (uint32_t)entry->flags << 16;
    char head[ENTRY_BYTES];

    put64(head, entry->value.len);
    put32(head + 8, entry->stored);
    put32(head + 12, key_and_flags);
    cn_buf_append(txn, head, sizeof(head));
    cn_buf_append_str(txn, entry->key);
    if (entry->value.len)
        cn_buf_append_str(txn, entry->value);
    cn_buf_append(txn, zeros, padded(len) - len);
}

/* The checksum covers the entries first and then the head, without the bytes of the checksum
 * itself. */
static uint64_t
txn_sum(const char *txn, uint64_t bytes, uint64_t seed)
{
    uint64_t sum = cn_checksum(txn + CN_JOURNAL_TXN_BYTES, bytes - CN_JOURNAL_TXN_BYTES, seed);

    return cn_checksum(txn, CN_JOURNAL_TXN_BYTES - CHECKSUM_BYTES, sum);
}

uint64_t
cn_journal_seal(struct cn_buf *txn, uint32_t n_entries, uint64_t number, uint64_t seed)
{
    uint64_t sum;

    put32(txn->data, TXN_MAGIC);
    put32(txn->data + 4, n_entries);
    put64(txn->data + 8, number);
    put64(txn->data + 16, txn->len);
    sum = txn_sum(txn->data, txn->len, seed);
    put64(txn->data + CN_JOURNAL_TXN_BYTES - CHECKSUM_BYTES, sum);
    return sum;
}

uint64_t
cn_journal_entry_bytes(const struct cn_journal_entry *entry)
{
    return ENTRY_BYTES + padded(entry->key.len + entry->value.len);
}

uint64_t
cn_journal_entry_at(const char *at, struct cn_journal_entry *out)
{
    uint64_t value_len = get64(at);
    uint16_t key_len = get16(at + 12);

    out->stored = get32(at + 8);
    out->flags = get16(at + 14);
    out->key = (struct cn_str){at + ENTRY_BYTES, key_len};
    out->value = (struct cn_str){at + ENTRY_BYTES + key_len, value_len};
    return cn_journal_entry_bytes(out);
}

uint32_t
cn_journal_txn_entries(const char *txn)
{
    return get32(txn + 4);
}

uint64_t
cn_journal_txn_bytes(const char *txn)
{
    return get64(txn + 16);
}

uint64_t
cn_journal_txn_sum(const char *txn)
{
    return get64(txn + CN_JOURNAL_TXN_BYTES - CHECKSUM_BYTES);
}

/* Do the entries fill the transaction exactly, each of them within it? The checksum was right, so
 * only a bug or a forger can make this fail; the readers of entries rely on it. */
static bool
entries_fit(const char *at, uint64_t left, uint32_t n)
{
    struct cn_journal_entry entry;
    uint64_t bytes;

    for (; n > 0; n--) {
        if (left < ENTRY_BYTES)
            return false;
        bytes = cn_journal_entry_at(at, &entry);
        if (entry.value.len > left || bytes > left || entry.key.len < 1 ||
            entry.key.len > CN_STORE_KEY_MAX || (entry.flags & ~ALL_FLAGS) ||
            ((entry.flags & CN_JOURNAL_REMOVED) && entry.value.len > 0))
            return false;
        at += bytes;
        left -= bytes;
    }
    return left == 0;
}

enum cn_journal_found
cn_journal_look(struct cn_str file, uint64_t at, uint64_t number, uint64_t seed,
                struct cn_journal_txn *out)
{
    const char *txn;

    if (at > file.len || file.len - at < CN_JOURNAL_TXN_BYTES)
        return CN_JOURNAL_NONE;
    txn = file.ptr + at;
    if (get32(txn) != TXN_MAGIC || get64(txn + 8) != number)
        return CN_JOURNAL_NONE;
    out->n_entries = get32(txn + 4);
    out->bytes = get64(txn + 16);
    out->seed = get64(txn + CN_JOURNAL_TXN_BYTES - CHECKSUM_BYTES);
    if (out->bytes < CN_JOURNAL_TXN_BYTES || out->bytes > file.len - at || out->bytes % 8 != 0 ||
        out->seed != txn_sum(txn, out->bytes, seed) ||
        !entries_fit(txn + CN_JOURNAL_TXN_BYTES, out->bytes - CN_JOURNAL_TXN_BYTES, out->n_entries))
        return CN_JOURNAL_TORN;
    return CN_JOURNAL_COMPLETE;
}
