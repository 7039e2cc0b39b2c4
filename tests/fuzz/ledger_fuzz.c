/* cn_fuzz: core store */
/* tests/fuzz/ledger_fuzz.c - a ledger comes from disk. Whatever its bytes are, everything that is
 * read lies within them, and what was written is found again unless a byte of it changes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "fuzz.h"
#include "store/journal/journal_ledger.h"

/* Reads all valid entries, and every hash of them, so that an overrun is noticed. */
static uint64_t
scan(struct cn_str file)
{
    uint64_t at = CN_LEDGER_HEADER_BYTES, number, journal_seed, boot, seed, n = 0, sum = 0;
    struct cn_ledger_entry entry;

    if (!cn_ledger_get_header(file, &number, &journal_seed, &boot))
        return 0;
    seed = cn_ledger_seed(number, journal_seed);
    while (cn_ledger_look(file, at, number, seed, &entry)) {
        cn_assert(entry.hashes + 8 * (uint64_t)entry.n_keys <= file.ptr + file.len);
        for (uint32_t i = 0; i < entry.n_keys; i++)
            sum += cn_ledger_hash_at(&entry, i) & 1;
        at += cn_ledger_entry_bytes(entry.n_keys);
        number++;
        n++;
    }
    cn_assert(at <= (file.len < CN_LEDGER_HEADER_BYTES ? CN_LEDGER_HEADER_BYTES : file.len));
    cn_assert(sum < UINT64_MAX);
    return n;
}

/* A fuzzer cannot guess a checksum, so the input is also used as the bytes of an entry with a
 * correct end. Its number of keys may be anything. */
static void
scan_ended(const uint8_t *data, size_t size)
{
    char header[CN_LEDGER_HEADER_BYTES];
    struct cn_buf entry, file;
    char *copy;

    cn_buf_init(&entry, 0);
    cn_buf_init(&file, 0);
    cn_ledger_put_header(header, 7, 11, 13);
    cn_buf_append(&file, header, sizeof(header));
    cn_buf_append(&entry, data, size & ~(size_t)7);
    if (entry.len >= 8)
        memcpy(entry.data, &(uint64_t){7}, 8);
    cn_ledger_end(&entry, cn_ledger_seed(7, 11));
    cn_buf_append_str(&file, cn_buf_str(&entry));
    copy = malloc(file.len); /* memory of exactly this size, so that an overrun is noticed */
    memcpy(copy, file.data, file.len);
    scan((struct cn_str){copy, file.len});
    free(copy);
    cn_buf_fini(&entry);
    cn_buf_fini(&file);
}

/* Two entries that we have written are found. If a byte of the first one changes, none is found. */
static void
check_own(const uint8_t *data, size_t size)
{
    struct cn_ledger_entry about = {.at = 64, .bytes = 96, .sum = 5, .version = 9};
    char header[CN_LEDGER_HEADER_BYTES];
    struct cn_buf entry, file;
    size_t at;

    if (size < 2)
        return;
    about.n_keys = data[0] % 8;
    cn_buf_init(&entry, 0);
    cn_buf_init(&file, 0);
    cn_ledger_put_header(header, 1, 3, 0);
    cn_buf_append(&file, header, sizeof(header));
    for (about.number = 1; about.number <= 2; about.number++) {
        cn_ledger_begin(&entry, &about);
        for (uint32_t i = 0; i < about.n_keys; i++)
            cn_ledger_add_key(&entry, (struct cn_str){(const char *)data, 1 + i % size});
        cn_ledger_end(&entry, cn_ledger_seed(1, 3));
        cn_assert(entry.len == cn_ledger_entry_bytes(about.n_keys));
        cn_buf_append_str(&file, cn_buf_str(&entry));
    }
    cn_assert(scan(cn_buf_str(&file)) == 2);
    at = CN_LEDGER_HEADER_BYTES + data[size - 1] % entry.len;
    file.data[at] ^= 1;
    cn_assert(scan(cn_buf_str(&file)) == 0);
    cn_buf_fini(&entry);
    cn_buf_fini(&file);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1);

    memcpy(copy, data, size);
    scan((struct cn_str){copy, size});
    scan_ended((const uint8_t *)copy, size);
    check_own((const uint8_t *)copy, size);
    free(copy);
    return 0;
}
