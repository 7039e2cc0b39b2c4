/* frontend/metrics_http.c - counters of all loops, on loop 0; others write them while we read. */
#include "frontend/metrics_http.h"

#include "core/metrics.h"
#include "frontend/answer.h"
#include "frontend/http_request.h"

void
cn_metrics_http_handle(struct cn_http_request *request)
{
    const struct cn_http_shared *shared = request->listener->shared;
    const struct cn_metrics **sets;
    struct cn_buf text;
    unsigned i;

    sets = cn_arena_alloc(&request->arena, sizeof(*sets) * shared->n_loops);
    for (i = 0; i < shared->n_loops; i++)
        sets[i] = cn_loop_metrics(shared->loops[i]);
    cn_buf_init(&text, 0);
    cn_metrics_print(sets, shared->n_loops, &text);
    cn_http_answer_bytes(request, 200, "text/plain; version=0.0.4; charset=utf-8",
                         cn_buf_str(&text));
    cn_buf_fini(&text);
}
