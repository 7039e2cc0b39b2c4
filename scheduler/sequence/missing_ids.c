/* scheduler/sequence/missing_ids.c - notices steps that lost the header with their sequence's id on
 * the way. On the model queue's loop.
 *
 * Behind nginx, which drops headers with underscores in their names, each step begins a new
 * sequence and is answered with 200. Nothing else shows that the model never sees a second step.
 */
#include "scheduler/sequence/missing_ids.h"

#include "core/log/log.h"
#include "core/loop/loop.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"

#define WINDOW_STEPS 64
#define NEARLY_ALL 61                     /* of 64, which is 95 % */
#define TELL_AGAIN_MS (UINT64_C(3600000)) /* one line an hour is noticed and fills no disk */

static bool
came_by_proxy(const struct cn_row *row)
{
    static const struct cn_str names[] = {CN_STR("via"), CN_STR("x-forwarded-for"),
                                          CN_STR("forwarded")};

    for (uint32_t i = 0; i < row->n_headers; i++)
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            if (cn_str_eq_header(row->headers[i].name, names[k]))
                return true;
    return false;
}

static void
tell(struct cn_model_queue *queue)
{
    const uint64_t now = cn_loop_now_ms(queue->loop);

    if (queue->missing_ids.told_ms && now - queue->missing_ids.told_ms < TELL_AGAIN_MS)
        return;
    queue->missing_ids.told_ms = now;
    cn_log(
        CN_LOG_WARN,
        "event=sequence_ids_missing model=%s version=%s steps=%u without_id=%u "
        "hint=\"nearly all steps arrive through a proxy without a sequence id, so each opens a new "
        "sequence; nginx drops headers with underscores in their names: set underscores_in_headers "
        "on, or let clients send Continuo-Sequence or ts-request-sequence-id\"",
        queue->name, queue->version, queue->missing_ids.steps, queue->missing_ids.nameless);
}

void
cn_missing_ids_note(struct cn_model_queue *queue, const struct cn_row *row)
{
    struct cn_missing_ids *seen = &queue->missing_ids;

    seen->steps++;
    if (row->sequence_id.len == 0 && came_by_proxy(row)) {
        seen->nameless++;
        cn_metrics_add(&queue->metrics, CN_M_JOBS_NAMELESS, 1);
    }
    if (seen->steps < WINDOW_STEPS)
        return;
    queue->stats.ids_missing = seen->nameless >= NEARLY_ALL;
    if (queue->stats.ids_missing)
        tell(queue);
    seen->steps = seen->nameless = 0;
}
