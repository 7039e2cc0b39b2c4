/* tracing/export/otlp.c - writes traces as OTLP messages, by protobuf-c. Any thread.
 *
 * The messages are built in an arena that lives for one call, and packed from there. A step's spans
 * have the step's times; a time that is missing, because the step never got so far, is that of the
 * phase before.
 *
 * One message has one resource (this server), one scope, and up to five spans for each trace:
 *   request   from the request's arrival to its final answer; its parent is that of the caller
 *     queue   until the step was sent to a worker
 *     batch   at the worker
 *       handler   inside the handler
 *       commit    from the handler's return until the state was committed
 * The times of a trace come from the monotonic clock. OTLP wants the time of day, so the difference
 * of both clocks at the moment of the export is added to all of them. */
#include "tracing/export/otlp.h"

#include <otlp.pb-c.h>
#include <stdio.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"

#define ATTRIBUTES_MAX 12
#define FLAG_REMOTE_KNOWN 0x100u /* it is known whether the parent is in another process */
#define FLAG_REMOTE 0x200u

static const char *const span_names[CN_N_SPANS] = {"request", "queue", "batch", "handler",
                                                   "commit"};
static const enum cn_span parents[CN_N_SPANS] = {
    [CN_SPAN_QUEUE] = CN_SPAN_REQUEST,
    [CN_SPAN_BATCH] = CN_SPAN_REQUEST,
    [CN_SPAN_HANDLER] = CN_SPAN_BATCH,
    [CN_SPAN_COMMIT] = CN_SPAN_BATCH,
};

/* A list of attributes that is being filled. */
struct attributes {
    struct cn_arena *arena;
    Continuo__Otlp__KeyValue **list;
    size_t n;
};

static struct attributes
begin_attributes(struct cn_arena *arena)
{
    return (struct attributes){
        .arena = arena,
        .list = cn_arena_alloc(arena, ATTRIBUTES_MAX * sizeof(Continuo__Otlp__KeyValue *))};
}

static Continuo__Otlp__AnyValue *
add(struct attributes *to, const char *key)
{
    Continuo__Otlp__KeyValue *pair = cn_arena_alloc(to->arena, sizeof(*pair));

    continuo__otlp__key_value__init(pair);
    pair->key = (char *)(uintptr_t)key;
    pair->value = cn_arena_alloc(to->arena, sizeof(*pair->value));
    continuo__otlp__any_value__init(pair->value);
    to->list[to->n++] = pair;
    return pair->value;
}

static void
add_text(struct attributes *to, const char *key, const char *text)
{
    Continuo__Otlp__AnyValue *value;

    if (!text || !text[0])
        return;
    value = add(to, key);
    value->value_case = CONTINUO__OTLP__ANY_VALUE__VALUE_STRING_VALUE;
    value->string_value = (char *)(uintptr_t)text;
}

static void
add_number(struct attributes *to, const char *key, uint64_t number)
{
    Continuo__Otlp__AnyValue *value = add(to, key);

    value->value_case = CONTINUO__OTLP__ANY_VALUE__VALUE_INT_VALUE;
    value->int_value = (int64_t)number;
}

static void
add_true(struct attributes *to, const char *key)
{
    Continuo__Otlp__AnyValue *value = add(to, key);

    value->value_case = CONTINUO__OTLP__ANY_VALUE__VALUE_BOOL_VALUE;
    value->bool_value = true;
}

/* Each span says which step of which sequence it belongs to, so that it can be found by them. */
static void
describe(struct attributes *to, const struct cn_trace *trace, enum cn_span span)
{
    add_text(to, "continuo.model", trace->model);
    add_text(to, "continuo.version", trace->version);
    add_text(to, "continuo.sequence.id", trace->sequence);
    if (trace->step)
        add_number(to, "continuo.step", trace->step);
    switch (span) {
    case CN_SPAN_REQUEST:
        add_text(to, "continuo.request.id", trace->request_id);
        if (trace->generation)
            add_number(to, "continuo.sequence.generation", trace->generation);
        if (trace->replayed)
            add_true(to, "continuo.replayed");
        if (trace->error_code)
            add_text(to, "error.type", cn_error_info(trace->error_code)->word);
        break;
    case CN_SPAN_BATCH:
        if (trace->times.n_sent > 1)
            add_number(to, "continuo.sent", trace->times.n_sent);
        break;
    case CN_SPAN_HANDLER:
        add_number(to, "continuo.handler.calls", trace->times.n_calls);
        add_number(to, "continuo.handler.microseconds", trace->times.inside_us);
        break;
    default:
        break;
    }
}

/* Sets from when to when the span lasts, in microseconds of cn_now_us(). */
static void
period_of(const struct cn_trace *trace, enum cn_span span, uint64_t *from, uint64_t *to)
{
    const struct cn_step_times *times = &trace->times;
    const uint64_t done = times->done_us ? times->done_us : trace->answered_us;

    switch (span) {
    case CN_SPAN_REQUEST:
    case CN_N_SPANS:
        *from = trace->begun_us;
        *to = trace->answered_us;
        break;
    case CN_SPAN_QUEUE:
        *from = times->arrived_us;
        *to = times->sent_us ? times->sent_us : done;
        break;
    case CN_SPAN_BATCH:
        *from = times->sent_us;
        *to = times->n_calls ? times->called_us : done;
        break;
    case CN_SPAN_HANDLER:
        *from = times->handler_us;
        *to = times->handled_us;
        break;
    case CN_SPAN_COMMIT:
        *from = times->handled_us;
        *to = times->called_us;
        break;
    }
    if (*to < *from)
        *to = *from;
}

static Continuo__Otlp__Span *
make_span(struct cn_arena *arena, const struct cn_trace *trace, enum cn_span at, uint64_t ahead_us)
{
    Continuo__Otlp__Span *span = cn_arena_alloc(arena, sizeof(*span));
    struct attributes attributes = begin_attributes(arena);
    const uint8_t *parent =
        at == CN_SPAN_REQUEST ? trace->context.parent_id : trace->span_ids[parents[at]];
    uint64_t from = 0, to = 0;

    continuo__otlp__span__init(span);
    period_of(trace, at, &from, &to);
    describe(&attributes, trace, at);
    span->trace_id.data = (uint8_t *)(uintptr_t)trace->context.trace_id;
    span->trace_id.len = CN_TRACE_ID_BYTES;
    span->span_id.data = (uint8_t *)(uintptr_t)trace->span_ids[at];
    span->span_id.len = CN_SPAN_ID_BYTES;
    if (at != CN_SPAN_REQUEST || trace->has_parent) {
        span->parent_span_id.data = (uint8_t *)(uintptr_t)parent;
        span->parent_span_id.len = CN_SPAN_ID_BYTES;
    }
    span->trace_state = (char *)(uintptr_t)trace->state;
    span->flags = CN_TRACE_FLAG_SAMPLED | FLAG_REMOTE_KNOWN |
                  (at == CN_SPAN_REQUEST && trace->has_parent ? FLAG_REMOTE : 0u);
    span->name = (char *)(uintptr_t)span_names[at];
    span->kind = at == CN_SPAN_REQUEST ? CONTINUO__OTLP__SPAN__KIND__SERVER
                                       : CONTINUO__OTLP__SPAN__KIND__INTERNAL;
    span->start_time_unix_nano = (from + ahead_us) * 1000;
    span->end_time_unix_nano = (to + ahead_us) * 1000;
    span->attributes = attributes.list;
    span->n_attributes = attributes.n;
    if (at == CN_SPAN_REQUEST && (trace->error_code || trace->status >= 500)) {
        span->status = cn_arena_alloc(arena, sizeof(*span->status));
        continuo__otlp__status__init(span->status);
        span->status->code = CONTINUO__OTLP__STATUS__CODE__ERROR;
        if (trace->error_code)
            span->status->message = (char *)(uintptr_t)cn_error_info(trace->error_code)->word;
    }
    return span;
}

/* Packs a message behind what `out` holds. */
static void
pack(const Continuo__Otlp__ExportRequest *message, struct cn_buf *out)
{
    const size_t len = continuo__otlp__export_request__get_packed_size(message);
    char *at = cn_buf_reserve(out, len);

    if (!at)
        return;
    continuo__otlp__export_request__pack(message, (uint8_t *)at);
    out->len += len;
}

void
cn_otlp_write(const struct cn_otlp_sender *sender, struct cn_trace *const *traces, uint32_t n,
              uint64_t wall_us, uint64_t now_us, struct cn_buf *out)
{
    Continuo__Otlp__ExportRequest message = CONTINUO__OTLP__EXPORT_REQUEST__INIT;
    Continuo__Otlp__ResourceSpans of_resource = CONTINUO__OTLP__RESOURCE_SPANS__INIT;
    Continuo__Otlp__ScopeSpans of_scope = CONTINUO__OTLP__SCOPE_SPANS__INIT;
    Continuo__Otlp__Resource resource = CONTINUO__OTLP__RESOURCE__INIT;
    Continuo__Otlp__Scope scope = CONTINUO__OTLP__SCOPE__INIT;
    Continuo__Otlp__ResourceSpans *one_resource = &of_resource;
    Continuo__Otlp__ScopeSpans *one_scope = &of_scope;
    struct attributes attributes;
    struct cn_arena arena;

    cn_arena_init(&arena);
    attributes = begin_attributes(&arena);
    add_text(&attributes, "service.name", sender->service);
    add_text(&attributes, "service.instance.id", sender->instance);
    add_text(&attributes, "service.version", CN_VERSION);
    resource.attributes = attributes.list;
    resource.n_attributes = attributes.n;
    scope.name = (char *)(uintptr_t) "continuo";
    scope.version = (char *)(uintptr_t)CN_VERSION;
    of_scope.scope = &scope;
    of_scope.spans = cn_arena_alloc(&arena, sizeof(*of_scope.spans) * (n * CN_N_SPANS + 1));
    for (uint32_t i = 0; i < n; i++)
        for (int at = 0; at < CN_N_SPANS; at++)
            if (cn_trace_has_span(traces[i], (enum cn_span)at))
                of_scope.spans[of_scope.n_spans++] =
                    make_span(&arena, traces[i], (enum cn_span)at, wall_us - now_us);
    of_resource.resource = &resource;
    of_resource.scope_spans = &one_scope;
    of_resource.n_scope_spans = 1;
    message.resource_spans = &one_resource;
    message.n_resource_spans = 1;
    pack(&message, out);
    cn_arena_fini(&arena);
}

uint64_t
cn_otlp_rejected(struct cn_str body)
{
    Continuo__Otlp__ExportResponse *response = continuo__otlp__export_response__unpack(
        NULL, body.len, (const uint8_t *)(body.ptr ? body.ptr : ""));
    uint64_t rejected = 0;

    if (response && response->partial_success && response->partial_success->rejected_spans > 0)
        rejected = (uint64_t)response->partial_success->rejected_spans;
    if (response)
        continuo__otlp__export_response__free_unpacked(response, NULL);
    return rejected;
}
