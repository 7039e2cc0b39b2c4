/* cn_fuzz: core store */
/* tests/fuzz/journal_fuzz.c - a journal comes from disk. Whatever its bytes are, everything that is
 * read lies within them, and what was sealed is found again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "fuzz.h"
#include "store/journal/journal.h"
#include "store/store.h"

/* Reads all valid transactions, and every byte of them, so that an overrun is noticed. */
static uint64_t
scan(struct cn_str file)
{
    uint64_t at = CN_JOURNAL_HEADER_BYTES, number, seed, n = 0, sum = 0;
    struct cn_journal_entry entry;
    struct cn_journal_txn txn;

    if (!cn_journal_get_header(file, &number, &seed))
        return 0;
    while (cn_journal_look(file, at, number, seed, &txn) == CN_JOURNAL_COMPLETE) {
        uint64_t inside = at + CN_JOURNAL_TXN_BYTES;

        for (uint32_t i = 0; i < txn.n_entries; i++) {
            inside += cn_journal_entry_at(file.ptr + inside, &entry);
            cn_assert(inside <= at + txn.bytes);
            cn_assert(entry.key.len >= 1 && entry.key.len <= CN_STORE_KEY_MAX);
            for (size_t k = 0; k < entry.key.len; k++)
                sum += (unsigned char)entry.key.ptr[k];
            for (size_t k = 0; k < entry.value.len; k++)
                sum += (unsigned char)entry.value.ptr[k];
        }
        cn_assert(inside == at + txn.bytes);
        at = inside;
        seed = txn.seed;
        number++;
        n++;
    }
    cn_assert(at <= file.len && sum < UINT64_MAX);
    return n;
}

/* A fuzzer cannot guess a checksum, so the input is also used as the entries of a transaction that
 * is sealed correctly. */
static void
scan_sealed(const uint8_t *data, size_t size)
{
    char header[CN_JOURNAL_HEADER_BYTES];
    struct cn_buf file, txn;
    uint64_t seed;
    char *copy;

    if (size < 1)
        return;
    cn_buf_init(&file, 0);
    cn_buf_init(&txn, 0);
    seed = cn_journal_put_header(header, 7);
    cn_buf_append(&file, header, sizeof(header));
    cn_journal_begin(&txn);
    cn_buf_append(&txn, data + 1, (size - 1) & ~(size_t)7);
    cn_journal_seal(&txn, data[0], 7, seed);
    cn_buf_append_str(&file, cn_buf_str(&txn));
    copy = malloc(file.len);
    memcpy(copy, file.data, file.len);
    scan((struct cn_str){copy, file.len});
    free(copy);
    cn_buf_fini(&file);
    cn_buf_fini(&txn);
}

/* A journal that we have written is valid as a whole, and not if a byte of it changes. */
static void
check_own(const uint8_t *data, size_t size)
{
    struct cn_journal_entry entry = {.flags = 0};
    char header[CN_JOURNAL_HEADER_BYTES];
    struct cn_buf file, txn;
    size_t key_len, at;
    uint64_t seed;

    if (size < 3)
        return;
    key_len = 1 + data[0] % (size - 2 < CN_STORE_KEY_MAX ? size - 2 : CN_STORE_KEY_MAX);
    entry.key = (struct cn_str){(const char *)data + 1, key_len};
    entry.value = (struct cn_str){(const char *)data + 1 + key_len, size - 1 - key_len};
    cn_buf_init(&file, 0);
    cn_buf_init(&txn, 0);
    seed = cn_journal_put_header(header, 1);
    cn_buf_append(&file, header, sizeof(header));
    for (uint64_t number = 1; number <= 2; number++) {
        cn_journal_begin(&txn);
        cn_journal_add(&txn, &entry);
        seed = cn_journal_seal(&txn, 1, number, seed);
        cn_buf_append_str(&file, cn_buf_str(&txn));
    }
    cn_assert(scan(cn_buf_str(&file)) == 2);
    at = CN_JOURNAL_HEADER_BYTES + data[size - 1] % txn.len;
    file.data[at] ^= 1;
    cn_assert(scan(cn_buf_str(&file)) == 0);
    cn_buf_fini(&file);
    cn_buf_fini(&txn);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1); /* exactly this size, so that an overrun is noticed */

    memcpy(copy, data, size);
    scan((struct cn_str){copy, size});
    scan_sealed((const uint8_t *)copy, size);
    check_own((const uint8_t *)copy, size);
    free(copy);
    return 0;
}
