/* store/journal/journal_ledger.c - reads and writes the format of journal_ledger.h. No state, any
 * thread.
 *
 * An entry has 56 bytes and 8 for each key of its transaction. It is built like a transaction of
 * the journal: cn_ledger_begin, cn_ledger_add_key for each key, cn_ledger_end. Keys are in it as
 * 64-bit hashes only, because the ledger must name lost sequences but never has to list their ids:
 * LMDB has all keys, and a repair compares their hashes. */
#include "store/journal/journal_ledger.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "store/record/checksum.h"
#include "store/record/little_endian.h"

#define MAGIC 0x314c4e43u /* "CNL1" */
#define FORMAT 1
#define HEAD_BYTES 48
#define CHECKSUM_BYTES 8
#define HASH_SEED 0x6c6564676572ull /* "ledger" */

uint64_t
cn_ledger_seed(uint64_t first, uint64_t journal_seed)
{
    char both[16];

    put64(both, first);
    put64(both + 8, journal_seed);
    return cn_checksum(both, sizeof(both), 0);
}

void
cn_ledger_put_header(char out[CN_LEDGER_HEADER_BYTES], uint64_t first, uint64_t journal_seed,
                     uint64_t boot)
{
    const size_t summed = CN_LEDGER_HEADER_BYTES - CHECKSUM_BYTES;

    memset(out, 0, CN_LEDGER_HEADER_BYTES);
    put32(out, MAGIC);
    put32(out + 4, FORMAT);
    put64(out + 8, first);
    put64(out + 16, journal_seed);
    put64(out + 24, boot);
    put64(out + summed, cn_checksum(out, summed, 0));
}

bool
cn_ledger_get_header(struct cn_str file, uint64_t *first, uint64_t *journal_seed, uint64_t *boot)
{
    const size_t summed = CN_LEDGER_HEADER_BYTES - CHECKSUM_BYTES;

    if (file.len < CN_LEDGER_HEADER_BYTES || get32(file.ptr) != MAGIC ||
        get32(file.ptr + 4) != FORMAT)
        return false;
    *first = get64(file.ptr + 8);
    *journal_seed = get64(file.ptr + 16);
    *boot = get64(file.ptr + 24);
    return *first > 0 && get64(file.ptr + summed) == cn_checksum(file.ptr, summed, 0);
}

/* Linux gives each boot a random id; its checksum is the number. */
uint64_t
cn_ledger_boot(void)
{
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, sizeof(id));

    if (fd >= 0)
        close(fd);
    return n > 0 ? cn_checksum(id, (size_t)n, HASH_SEED) : 0;
}

void
cn_ledger_begin(struct cn_buf *out, const struct cn_ledger_entry *entry)
{
    char head[HEAD_BYTES] = {0};

    put64(head, entry->number);
    put64(head + 8, entry->at);
    put64(head + 16, entry->bytes);
    put64(head + 24, entry->sum);
    put64(head + 32, entry->version);
    put32(head + 40, entry->n_keys);
    cn_buf_reset(out);
    cn_buf_append(out, head, sizeof(head));
}

void
cn_ledger_add_key(struct cn_buf *out, struct cn_str key)
{
    char hash[8];

    put64(hash, cn_ledger_hash(key));
    cn_buf_append(out, hash, sizeof(hash));
}

void
cn_ledger_end(struct cn_buf *out, uint64_t seed)
{
    char sum[CHECKSUM_BYTES];

    if (out->failed)
        return;
    put64(sum, cn_checksum(out->data, out->len, seed));
    cn_buf_append(out, sum, sizeof(sum));
}

uint64_t
cn_ledger_entry_bytes(uint32_t n_keys)
{
    return HEAD_BYTES + (uint64_t)n_keys * 8 + CHECKSUM_BYTES;
}

bool
cn_ledger_look(struct cn_str file, uint64_t at, uint64_t number, uint64_t seed,
               struct cn_ledger_entry *out)
{
    const char *entry;
    uint64_t bytes;

    if (at > file.len || file.len - at < HEAD_BYTES + CHECKSUM_BYTES)
        return false;
    entry = file.ptr + at;
    out->number = get64(entry);
    out->n_keys = get32(entry + 40);
    bytes = cn_ledger_entry_bytes(out->n_keys);
    if (out->number != number || bytes > file.len - at ||
        get64(entry + bytes - CHECKSUM_BYTES) != cn_checksum(entry, bytes - CHECKSUM_BYTES, seed))
        return false;
    out->at = get64(entry + 8);
    out->bytes = get64(entry + 16);
    out->sum = get64(entry + 24);
    out->version = get64(entry + 32);
    out->hashes = entry + HEAD_BYTES;
    return true;
}

uint64_t
cn_ledger_hash(struct cn_str key)
{
    return cn_checksum(key.ptr, key.len, HASH_SEED);
}

uint64_t
cn_ledger_hash_at(const struct cn_ledger_entry *entry, uint32_t i)
{
    return get64(entry->hashes + 8 * (uint64_t)i);
}
