/* cn_fuzz: core store */
/* tests/fuzz/record_fuzz.c - records come from disk, which may hold anything after a power cut. The
 * decoder must refuse the bytes, or return fields that can be encoded to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "store/record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A fuzzer cannot guess the checksum of all bytes, so check_fields() does without it. */
static void
check(struct cn_str bytes)
{
    struct cn_record record, again;
    struct cn_str chunks, chunk;
    struct cn_buf out;
    uint32_t n = 0;

    if (cn_record_decode(bytes, &record, NULL) != 0)
        return;
    chunks = record.chunks;
    while (cn_record_next_chunk(&chunks, &chunk))
        n++;
    cn_assert(n == record.n_chunks);
    cn_buf_init(&out, 0);
    cn_assert(cn_record_encode(&record, &out, NULL) == 0);
    if (bytes.ptr[4] == CN_RECORD_FORMAT) { /* other formats are refused, so nothing is encoded */
        cn_assert(out.len >= bytes.len);    /* the input may have shorter numbers */
        cn_assert(out.len > bytes.len || cn_str_eq(cn_buf_str(&out), bytes));
    }
    cn_assert(cn_record_decode(cn_buf_str(&out), &again, NULL) == 0);
    cn_buf_fini(&out);
}

/* Uses the input as the fields of a record. What is encoded must be decoded or refused. */
static void
check_fields(const uint8_t *data, size_t size)
{
    struct cn_record record = {.generation = 1};
    struct cn_str *parts[] = {&record.content_type, &record.headers, &record.chunks, &record.body,
                              &record.state};
    struct cn_buf out;

    if (size < 16)
        return;
    record.flags = data[0] & 15;
    record.close_reason = data[1] & 7;
    record.n_headers = data[2];
    record.n_chunks = data[3];
    record.closed_wall_ms = data[4];
    memcpy(&record.last_wall_ms, data, sizeof(record.last_wall_ms));
    record.flags |= data[10] & 1 ? CN_RECORD_ASKED : 0u;
    record.flags |= data[10] & 2 ? CN_RECORD_KEYED : 0u;
    record.keys = (struct cn_str){(const char *)data, data[10] / 4 % 3 * CN_KEY_HASH_BYTES};
    for (size_t i = 0; i < 5; i++) {
        size_t len = data[5 + i];

        if (len > size - 16)
            len = size - 16;
        *parts[i] = (struct cn_str){(const char *)data + 16, len};
        data += len;
        size -= len;
    }
    cn_buf_init(&out, 0);
    cn_assert(cn_record_encode(&record, &out, NULL) == 0);
    check(cn_buf_str(&out));
    cn_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Memory of exactly this size, so that an overrun is noticed. */
    char *copy = malloc(size ? size : 1);

    memcpy(copy, data, size);
    check((struct cn_str){copy, size});
    check_fields((const uint8_t *)copy, size);
    free(copy);
    return 0;
}
