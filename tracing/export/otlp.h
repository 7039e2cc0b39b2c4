/* tracing/export/otlp.h - traces as OTLP messages. Any thread, no state. */
#ifndef CN_TRACING_EXPORT_OTLP_H
#define CN_TRACING_EXPORT_OTLP_H

#include "core/memory/buf.h"
#include "tracing/trace.h"

/* The server that sends: attributes of all spans of a message. */
struct cn_otlp_sender {
    const char *service;  /* service.name */
    const char *instance; /* service.instance.id */
};

/* Appends an ExportTraceServiceRequest with the spans of these traces. `wall_us` and `now_us` are
 * the two clocks at one moment. out->failed is set if there is not enough memory. */
void cn_otlp_write(const struct cn_otlp_sender *sender, struct cn_trace *const *traces, uint32_t n,
                   uint64_t wall_us, uint64_t now_us, struct cn_buf *out);
/* Returns how many spans the receiver has rejected, by the body of its answer. A body that is not
 * such a message says nothing: 0. */
uint64_t cn_otlp_rejected(struct cn_str body);

#endif
