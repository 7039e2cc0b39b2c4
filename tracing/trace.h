/* tracing/trace.h - the traces of steps: which steps are sampled, what is noted of them, and the
 * rings in which they wait for the exporter.
 *
 * A trace begins when its step is given to the scheduler, on the loop of its request. It belongs to
 * the job from then on, and the loop that has the job may write into it. With the final answer it
 * goes into a ring of the request's loop. The exporter's thread takes it out and frees it. A loop
 * never waits: if its ring is full, the trace is dropped and counted.
 *
 * Only sampled steps have a trace. Without an exporter, a step costs one relaxed load. */
#ifndef CN_TRACING_TRACE_H
#define CN_TRACING_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"
#include "tracing/step_times.h"
#include "tracing/trace_context.h"

#define CN_TRACE_RATE_ALL 1000000 /* a sample rate of 1 */
#define CN_TRACE_LOOPS_MAX 64

/* The spans of a step. REQUEST is the parent of QUEUE and BATCH, and BATCH that of HANDLER and
 * COMMIT. */
enum cn_span {
    CN_SPAN_REQUEST, /* from the request's arrival to its final answer */
    CN_SPAN_QUEUE,   /* in the model's queue, until it is sent to a worker */
    CN_SPAN_BATCH,   /* at the worker, until what its batch changed is committed */
    CN_SPAN_HANDLER, /* inside the handler */
    CN_SPAN_COMMIT,  /* from the handler's return until its state is committed */
    CN_N_SPANS
};

struct cn_trace {
    const void *job; /* whose it is; only compared */
    struct cn_trace_context context;
    bool has_parent; /* context.parent_id is the caller's */
    uint8_t span_ids[CN_N_SPANS][CN_SPAN_ID_BYTES];
    char answered[CN_TRACEPARENT_LEN + 1];    /* traceparent of the answer: the request's span */
    char for_handler[CN_TRACEPARENT_LEN + 1]; /* and that of the row: the handler's span */
    /* The row's headers with the handler's traceparent, and those that the client sent. */
    struct cn_header *headers, *client_headers;
    uint32_t n_client_headers;
    bool is_stateful;
    uint64_t begun_us, answered_us;
    struct cn_step_times times;

    /* What the final answer said. */
    uint64_t step, generation;
    int error_code;
    uint16_t status;
    bool replayed;

    /* NUL-terminated texts; the first three and the tracestate lie behind the struct. */
    const char *model, *version, *request_id, *state;
    char sequence[CN_SEQUENCE_ID_MAX + 1]; /* as people read it; "": none */
};

struct cn_tracing {
    uint32_t rate;  /* how many of CN_TRACE_RATE_ALL steps without a caller's trace are sampled */
    uint32_t queue; /* traces that may wait for the exporter, per loop; rounded up to 2^n */
    unsigned n_loops;
    void (*wake)(void *ctx); /* called on a loop when its ring is half full; must not wait */
    void *ctx;
};

/* Switches tracing on, before the first loop runs; and off, when no loop runs any more. stop frees
 * the traces that were not taken. */
void cn_tracing_start(const struct cn_tracing *settings);
void cn_tracing_stop(void);

extern atomic_bool cn_tracing_on_;
static inline bool
cn_tracing_is_on(void)
{
    return atomic_load_explicit(&cn_tracing_on_, memory_order_relaxed);
}

/* Decides whether the step is sampled: as its caller has decided, if the row has a valid
 * traceparent, and by chance otherwise. Returns NULL if it is not. Else the row's headers are
 * replaced: the handler gets a traceparent that names its own span. `begun_us` is when the request
 * came. On the loop of the request. */
struct cn_trace *cn_trace_begin(const void *job, struct cn_row *row, const char *model,
                                const char *version, uint64_t begun_us);

/* The final answer is here: notes what it says, and gives the row the client's headers back. */
void cn_trace_answered(struct cn_trace *trace, struct cn_row *row, const struct cn_answer *answer,
                       struct cn_str sequence_id, uint64_t now_us);
/* Hands the trace to the exporter. `loop` is the number of the calling loop. */
void cn_trace_send(struct cn_trace *trace, unsigned loop);

/* Takes up to `max` traces out of the rings, for the exporter's thread. The caller frees them. */
uint32_t cn_traces_take(struct cn_trace **out, uint32_t max);
void cn_trace_free(struct cn_trace *trace);

/* The number of spans that the trace has: those of phases that the step never reached are missing.
 */
uint32_t cn_trace_spans(const struct cn_trace *trace);
bool cn_trace_has_span(const struct cn_trace *trace, enum cn_span span);

/* What became of all spans. Any thread. */
struct cn_trace_counts {
    uint64_t exported, dropped;
};
struct cn_trace_counts cn_trace_counts(void);
void cn_trace_count_exported(uint64_t spans);
void cn_trace_count_dropped(uint64_t spans);

#endif
