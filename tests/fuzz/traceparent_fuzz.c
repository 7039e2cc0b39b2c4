/* cn_fuzz: core tracing */
/* tests/fuzz/traceparent_fuzz.c - any bytes as a traceparent and as a tracestate.
 *
 * A traceparent that is accepted has ids that are not zero, and is written again as the first 55
 * characters of the input, except that the version becomes 00. */
#include <string.h>

#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"
#include "tracing/trace_context.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct cn_str text = {(const char *)bytes, len};
    char written[CN_TRACEPARENT_LEN + 1];
    struct cn_trace_context context, again;

    if (cn_tracestate_is_valid(text))
        cn_assert(len <= CN_TRACESTATE_MAX);
    if (!cn_traceparent_read(text, &context))
        return 0;
    cn_assert(len >= CN_TRACEPARENT_LEN);
    cn_traceparent_write(context.trace_id, context.parent_id, context.flags, written);
    cn_assert(memcmp(written + 2, text.ptr + 2, CN_TRACEPARENT_LEN - 2) == 0);
    cn_assert(cn_traceparent_read(cn_str_from(written), &again));
    cn_assert(memcmp(&context, &again, sizeof(context)) == 0);
    return 0;
}
