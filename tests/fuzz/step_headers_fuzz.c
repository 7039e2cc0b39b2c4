/* cn_fuzz: core frontend/intake */
/* tests/fuzz/step_headers_fuzz.c - any bytes as the headers that control a step.
 *
 * Input: lines "name:value". What is accepted is within the limits that the store and the frames
 * rely on, and lies in the input.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/text/utf8.h"
#include "frontend/intake/step_headers.h"
#include "tests/fuzz/fuzz.h"

#define HEADERS_MAX 32

static uint32_t
split(struct cn_str text, struct cn_header headers[HEADERS_MAX])
{
    uint32_t n = 0;

    while (text.len > 0 && n < HEADERS_MAX) {
        const char *end = memchr(text.ptr, '\n', text.len), *colon;
        const size_t len = end ? (size_t)(end - text.ptr) : text.len;

        colon = memchr(text.ptr, ':', len);
        if (colon) {
            const size_t name_len = (size_t)(colon - text.ptr);

            headers[n].name = (struct cn_str){text.ptr, name_len};
            headers[n++].value = (struct cn_str){colon + 1, len - name_len - 1};
        }
        text.ptr += len + (end != NULL);
        text.len -= len + (end != NULL);
    }
    return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct cn_str text = {(const char *)bytes, len};
    struct cn_header headers[HEADERS_MAX];
    const uint32_t n = split(text, headers);
    struct cn_sequence_headers sequence;
    struct cn_row row = {0};
    struct cn_error err = {0};
    struct cn_str key;

    if (cn_intake_read_sequence(headers, n, &sequence, &err) == 0)
        cn_assert(sequence.id.len <= CN_SEQUENCE_ID_MAX && cn_utf8_is_printable(sequence.id) &&
                  sequence.id_name.len > 0);
    else
        cn_assert(err.code == CN_E_BAD_REQUEST && err.message[0]);
    if (cn_intake_read_key(headers, n, &key, &err) == 0)
        cn_assert(key.len <= CN_IDEMPOTENCY_KEY_MAX);
    else
        cn_assert(err.code == CN_E_BAD_REQUEST);
    if (cn_intake_read_step(headers, n, &row, &err) == 0)
        cn_assert((row.flags & CN_ROW_NUMBERED) ? row.step >= 1 && row.step <= INT64_MAX
                                                : row.step == 0);
    else
        cn_assert(err.code == CN_E_BAD_REQUEST);
    return 0;
}
