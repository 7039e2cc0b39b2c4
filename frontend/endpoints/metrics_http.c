/* frontend/endpoints/metrics_http.c - /metrics. On loop 0.
 *
 * Each loop counts in a set of its own; this file reads the sets while their loops change them, and
 * adds them up. The numbers of models are asked for first, and on_gathered() writes the page when
 * they have come.
 */
#include "frontend/endpoints/metrics_http.h"

#include <string.h>

#include "frontend/http/accept.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "metrics/page/handler_families.h"
#include "metrics/page/infer_metrics.h"
#include "metrics/page/key_metrics.h"
#include "metrics/page/openmetrics.h"
#include "metrics/page/recent_counters.h"
#include "metrics/page/torchserve_page.h"
#include "tracing/trace.h"

struct metrics_call {
    struct cn_metrics_order order;
    struct cn_http_request *request;
    struct cn_metric_filter filter;
};

/* Reads the families that name[]=FAMILY selects. Returns false for a malformed escape. */
static bool
read_filter(struct cn_http_request *request, struct cn_metric_filter *filter)
{
    struct cn_str *names = cn_arena_alloc(&request->arena, sizeof(*names) * (request->n_query + 1));
    struct cn_str name;
    uint32_t i;

    for (i = 0; i < request->n_query; i++) {
        if (!cn_http_decode(&request->arena, request->query[i].name, true, &name) ||
            !cn_http_decode(&request->arena, request->query[i].value, true, &names[filter->n]))
            return false;
        if (cn_str_eq(name, CN_STR("name[]")))
            filter->n++;
    }
    filter->names = names;
    return true;
}

/* Answers with the page in the format that the reader asks for. */
static void
answer(struct cn_http_request *request, const struct cn_buf *page,
       const struct cn_model_counted *models, unsigned n)
{
    const struct cn_header *accept =
        cn_header_find(request->headers, request->n_headers, CN_STR("Accept"));
    struct cn_buf text;

    if (!accept || !cn_http_accepts(accept->value, CN_STR("application/openmetrics-text"))) {
        cn_http_answer_bytes(request, 200, "text/plain; version=0.0.4; charset=utf-8",
                             cn_buf_str(page));
        return;
    }
    cn_buf_init(&text, 0);
    cn_openmetrics_print(cn_buf_str(page), models, n, &text);
    cn_http_answer_bytes(request, 200, CN_OPENMETRICS_TYPE, cn_buf_str(&text));
    cn_buf_fini(&text);
}

static void
on_gathered(struct cn_metrics_order *order, const struct cn_model_counted *models, unsigned n)
{
    struct metrics_call *call = cn_container_of(order, struct metrics_call, order);
    struct cn_http_request *request = call->request;
    const struct cn_http_shared *shared = request->listener->shared;
    const struct cn_metrics **sets;
    struct cn_metrics_of *ours;
    struct cn_trace_counts spans;
    struct cn_buf text;
    unsigned i;

    sets = cn_arena_alloc(&request->arena, sizeof(*sets) * shared->n_loops);
    for (i = 0; i < shared->n_loops; i++)
        sets[i] = cn_loop_metrics(shared->loops[i]);
    for (i = 0; i < CN_N_LOG_FILES; i++)
        cn_metrics_set_log(cn_loop_metrics(shared->loops[0]), CN_M_LOG_DROPPED, (enum cn_log_file)i,
                           cn_log_files_dropped((enum cn_log_file)i));
    spans = cn_trace_counts();
    cn_metrics_set(cn_loop_metrics(shared->loops[0]), CN_M_SPANS_EXPORTED, spans.exported);
    cn_metrics_set(cn_loop_metrics(shared->loops[0]), CN_M_SPANS_DROPPED, spans.dropped);
    cn_recent_show(shared->recent);
    cn_buf_init(&text, 0);
    ours = cn_arena_alloc(&request->arena, sizeof(*ours) * (n + 1));
    for (i = 0; i < n; i++)
        ours[i] = (struct cn_metrics_of){models[i].metrics, models[i].labels};
    cn_metrics_print(sets, shared->n_loops, ours, n, &call->filter, &text);
    cn_ts_print(sets, shared->n_loops, models, n, shared->cpu_times, &call->filter, &text);
    cn_handler_metrics_print(models, n, &call->filter, &text);
    cn_infer_metrics_print(shared->management, &call->filter, &text);
    cn_key_metrics_print(cn_management_accounts(shared->management), &call->filter, &text);
    answer(request, &text, models, n);
    cn_buf_fini(&text);
    cn_http_request_release(request);
}

void
cn_metrics_http_handle(struct cn_http_request *request)
{
    struct metrics_call *call = cn_arena_alloc(&request->arena, sizeof(*call));

    memset(call, 0, sizeof(*call));
    call->request = request;
    call->order.on_done = on_gathered;
    if (!read_filter(request, &call->filter)) {
        cn_http_answer_error(request, CN_E_BAD_REQUEST,
                             "the query has %00 or an escape that is not % and two hex digits", 0);
        return;
    }
    cn_http_request_hold(request, call, NULL);
    cn_management_metrics(request->listener->shared->management, &call->order);
}
