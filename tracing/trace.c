/* tracing/trace.c - begins traces, ends them, and keeps them until the exporter takes them.
 *
 * Each loop has a ring with one writer, the loop, and one reader, the exporter. So neither needs a
 * lock: the writer publishes a trace with the store of `end`, and the reader gives the place back
 * with the store of `begin`.
 *
 * Whether a step has a trace is decided once, at its begin: a caller that sends a traceparent has
 * decided already, by the flag in it, and otherwise chance decides with the rate of the options. A
 * step without a trace costs nothing further.
 *
 * The counters of a ring only grow and wrap around at 2^32; the place is the counter modulo the
 * size. That stays right over the wrap only if the size divides 2^32, so it is rounded up to a
 * power of two. */
#include "tracing/trace.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/text/utf8.h"

#define REQUEST_ID_MAX 256 /* the bytes that a trace keeps of a request's id */

struct ring {
    struct cn_trace **places;
    _Alignas(64) atomic_uint end;   /* traces that were ever put in; only the loop writes it */
    _Alignas(64) atomic_uint begin; /* and taken out; only the exporter writes it */
};

atomic_bool cn_tracing_on_;

static struct {
    struct cn_tracing settings;
    struct ring rings[CN_TRACE_LOOPS_MAX];
    unsigned first; /* the ring that cn_traces_take looks into first; the exporter's */
    atomic_uint_least64_t exported, dropped;
} tracing;

void
cn_tracing_start(const struct cn_tracing *settings)
{
    cn_assert(settings->n_loops <= CN_TRACE_LOOPS_MAX && settings->queue > 0);
    tracing.settings = *settings;
    tracing.settings.queue = 1;
    while (tracing.settings.queue <
           settings->queue) /* the counters of a ring wrap around at 2^32 */
        tracing.settings.queue *= 2;
    for (unsigned i = 0; i < settings->n_loops; i++) {
        struct ring *ring = &tracing.rings[i];

        ring->places = cn_alloc(sizeof(*ring->places) * tracing.settings.queue);
        atomic_store(&ring->end, 0);
        atomic_store(&ring->begin, 0);
    }
    atomic_store(&cn_tracing_on_, true);
}

void
cn_tracing_stop(void)
{
    struct cn_trace *trace;

    if (!cn_tracing_is_on())
        return;
    atomic_store(&cn_tracing_on_, false);
    while (cn_traces_take(&trace, 1) > 0) {
        cn_trace_count_dropped(cn_trace_spans(trace));
        cn_trace_free(trace);
    }
    for (unsigned i = 0; i < tracing.settings.n_loops; i++) {
        cn_free(tracing.rings[i].places);
        tracing.rings[i].places = NULL;
    }
}

/* --- the begin */

/* Reads what the caller says. Returns false if it names no trace. A message of a gRPC stream may
 * have a traceparent of its own, which stands behind that of the stream, so the last one counts. */
static bool
read_context(const struct cn_row *row, struct cn_trace_context *context, struct cn_str *state)
{
    bool valid = false;

    *state = CN_STR("");
    for (uint32_t i = 0; i < row->n_headers; i++) {
        const struct cn_header *header = &row->headers[i];

        if (cn_str_eq_nocase(header->name, CN_STR("traceparent")))
            valid = cn_traceparent_read(header->value, context);
        else if (cn_str_eq_nocase(header->name, CN_STR("tracestate")) &&
                 cn_tracestate_is_valid(header->value))
            *state = header->value;
    }
    if (!valid) /* by the standard, a tracestate means nothing then */
        *state = CN_STR("");
    return valid;
}

static bool
by_chance(void)
{
    return cn_random_u64() % CN_TRACE_RATE_ALL < tracing.settings.rate;
}

/* Copies a text behind those that were copied before, with a NUL. */
static const char *
keep(char **at, struct cn_str text)
{
    char *begun = *at;

    if (text.len)
        memcpy(begun, text.ptr, text.len);
    begun[text.len] = '\0';
    *at += text.len + 1;
    return begun;
}

/* Gives the row headers that name the handler's span, so that what the handler calls becomes a part
 * of the same trace. */
static void
dress(struct cn_trace *trace, struct cn_row *row)
{
    uint32_t n = 0;

    trace->client_headers = row->headers;
    trace->n_client_headers = row->n_headers;
    trace->headers = cn_alloc(sizeof(*trace->headers) * (row->n_headers + 2));
    for (uint32_t i = 0; i < row->n_headers; i++)
        if (!cn_trace_is_context(row->headers[i].name))
            trace->headers[n++] = row->headers[i];
    trace->headers[n++] =
        (struct cn_header){CN_STR("traceparent"), {trace->for_handler, CN_TRACEPARENT_LEN}};
    if (trace->state[0])
        trace->headers[n++] = (struct cn_header){CN_STR("tracestate"), cn_str_from(trace->state)};
    row->headers = trace->headers;
    row->n_headers = n;
}

/* All texts are copied behind the struct in one allocation, because the request that has them may
 * end before the trace is exported. The random ids of all spans are drawn at once, also for spans
 * that the step never reaches. */
struct cn_trace *
cn_trace_begin(const void *job, struct cn_row *row, const char *model, const char *version,
               uint64_t begun_us)
{
    struct cn_trace_context context = {.flags = 0};
    const struct cn_str names[] = {cn_str_from(model), cn_str_from(version)};
    const struct cn_str id = {row->request_id.ptr, cn_utf8_cut(row->request_id, REQUEST_ID_MAX)};
    struct cn_str state;
    const bool has_parent = read_context(row, &context, &state);
    struct cn_trace *trace;
    char *at;

    if (!(has_parent ? context.flags & CN_TRACE_FLAG_SAMPLED : by_chance()))
        return NULL;
    trace = cn_alloc(sizeof(*trace) + names[0].len + names[1].len + id.len + state.len + 4);
    memset(trace, 0, sizeof(*trace));
    at = (char *)(trace + 1);
    trace->job = job;
    trace->context = context;
    trace->context.flags |= CN_TRACE_FLAG_SAMPLED;
    trace->has_parent = has_parent;
    if (!has_parent)
        cn_random_bytes(trace->context.trace_id, sizeof(trace->context.trace_id));
    cn_random_bytes(trace->span_ids, sizeof(trace->span_ids));
    trace->model = keep(&at, names[0]);
    trace->version = keep(&at, names[1]);
    trace->request_id = keep(&at, id);
    trace->state = keep(&at, state);
    trace->begun_us = begun_us;
    cn_traceparent_write(trace->context.trace_id, trace->span_ids[CN_SPAN_REQUEST],
                         CN_TRACE_FLAG_SAMPLED, trace->answered);
    cn_traceparent_write(trace->context.trace_id, trace->span_ids[CN_SPAN_HANDLER],
                         CN_TRACE_FLAG_SAMPLED, trace->for_handler);
    dress(trace, row);
    return trace;
}

/* --- the end */

void
cn_trace_answered(struct cn_trace *trace, struct cn_row *row, const struct cn_answer *answer,
                  struct cn_str sequence_id, uint64_t now_us)
{
    const struct cn_str shown = cn_sequence_id_shown(sequence_id);

    row->headers = trace->client_headers;
    row->n_headers = trace->n_client_headers;
    cn_free(trace->headers);
    trace->headers = NULL;
    trace->is_stateful = sequence_id.len > 0;
    if (shown.len && shown.len < sizeof(trace->sequence))
        memcpy(trace->sequence, shown.ptr, shown.len); /* the rest is zero */
    trace->answered_us = now_us;
    trace->error_code = answer->error_code;
    trace->status = answer->status;
    trace->replayed = answer->flags & CN_ANSWER_REPLAYED;
    if (!answer->error_code) { /* else it is the step number that would be right */
        trace->step = answer->step;
        trace->generation = answer->generation;
    }
}

/* The loop wakes the exporter once, when its ring becomes half full, and not with each trace: a
 * write to the eventfd is a system call. */
void
cn_trace_send(struct cn_trace *trace, unsigned loop)
{
    struct ring *ring = &tracing.rings[loop];
    const uint32_t size = tracing.settings.queue;
    unsigned end, waiting;

    cn_assert(loop < CN_TRACE_LOOPS_MAX);
    if (!ring->places) { /* it was still under way when tracing ended */
        cn_trace_free(trace);
        return;
    }
    end = atomic_load_explicit(&ring->end, memory_order_relaxed);
    waiting = end - atomic_load_explicit(&ring->begin, memory_order_acquire);
    if (waiting >= size) {
        cn_trace_count_dropped(cn_trace_spans(trace));
        cn_trace_free(trace);
        return;
    }
    ring->places[end % size] = trace;
    atomic_store_explicit(&ring->end, end + 1, memory_order_release);
    if (waiting == size / 2)
        tracing.settings.wake(tracing.settings.ctx);
}

/* Each call begins with the next ring. If there are more traces than the collector takes, all loops
 * lose some of theirs then, and not only the last ones. */
uint32_t
cn_traces_take(struct cn_trace **out, uint32_t max)
{
    const unsigned n_loops = tracing.settings.n_loops, first = tracing.first++;
    uint32_t n = 0;

    for (unsigned i = 0; i < n_loops; i++) {
        struct ring *ring = &tracing.rings[(first + i) % n_loops];
        unsigned begin = atomic_load_explicit(&ring->begin, memory_order_relaxed);
        const unsigned end = atomic_load_explicit(&ring->end, memory_order_acquire);

        while (begin != end && n < max)
            out[n++] = ring->places[begin++ % tracing.settings.queue];
        atomic_store_explicit(&ring->begin, begin, memory_order_release);
    }
    return n;
}

void
cn_trace_free(struct cn_trace *trace)
{
    cn_free(trace->headers);
    cn_free(trace);
}

bool
cn_trace_has_span(const struct cn_trace *trace, enum cn_span span)
{
    switch (span) {
    case CN_SPAN_REQUEST:
        return true;
    case CN_SPAN_QUEUE:
        return trace->times.arrived_us != 0;
    case CN_SPAN_BATCH:
        return trace->times.sent_us != 0;
    case CN_SPAN_HANDLER:
        return trace->times.n_calls > 0;
    case CN_SPAN_COMMIT: /* a step that fails, and one without state, commits nothing */
        return trace->times.n_calls > 0 && trace->is_stateful && trace->step > 0;
    case CN_N_SPANS:
        break;
    }
    return false;
}

uint32_t
cn_trace_spans(const struct cn_trace *trace)
{
    uint32_t n = 0;

    for (int span = 0; span < CN_N_SPANS; span++)
        n += cn_trace_has_span(trace, (enum cn_span)span);
    return n;
}

/* --- counts */

struct cn_trace_counts
cn_trace_counts(void)
{
    return (struct cn_trace_counts){
        .exported = atomic_load_explicit(&tracing.exported, memory_order_relaxed),
        .dropped = atomic_load_explicit(&tracing.dropped, memory_order_relaxed)};
}

void
cn_trace_count_exported(uint64_t spans)
{
    atomic_fetch_add_explicit(&tracing.exported, spans, memory_order_relaxed);
}

void
cn_trace_count_dropped(uint64_t spans)
{
    atomic_fetch_add_explicit(&tracing.dropped, spans, memory_order_relaxed);
}
