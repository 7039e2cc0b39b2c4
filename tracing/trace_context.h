/* tracing/trace_context.h - W3C Trace Context: the headers traceparent and tracestate, by which a
 * caller says to which trace its request belongs. Any thread, no state. */
#ifndef CN_TRACING_TRACE_CONTEXT_H
#define CN_TRACING_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

#define CN_TRACE_ID_BYTES 16
#define CN_SPAN_ID_BYTES 8
#define CN_TRACEPARENT_LEN 55   /* "00-", 32 digits, "-", 16 digits, "-", 2 digits */
#define CN_TRACESTATE_MAX 512   /* bytes; a longer one is dropped, as the standard allows */
#define CN_TRACE_FLAG_SAMPLED 1 /* the caller records its part of the trace */

struct cn_trace_context {
    uint8_t trace_id[CN_TRACE_ID_BYTES];
    uint8_t parent_id[CN_SPAN_ID_BYTES]; /* the caller's span */
    uint8_t flags;                       /* CN_TRACE_FLAG_... */
};

/* Reads the value of a traceparent. Returns false for a value that the standard calls invalid: its
 * sender must be ignored, and a new trace begins. */
bool cn_traceparent_read(struct cn_str value, struct cn_trace_context *out);
/* Writes a traceparent of version 00 with a NUL. */
void cn_traceparent_write(const uint8_t trace_id[CN_TRACE_ID_BYTES],
                          const uint8_t span_id[CN_SPAN_ID_BYTES], uint8_t flags,
                          char out[CN_TRACEPARENT_LEN + 1]);
/* Is it the name of one of the two headers? */
bool cn_trace_is_context(struct cn_str name);
/* May the value of a tracestate be passed on? It has only printable ASCII and is not too long. Its
 * members belong to others and are not looked at. */
bool cn_tracestate_is_valid(struct cn_str value);

#endif
