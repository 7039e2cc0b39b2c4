/* metrics/page/model_statistics.c - collects the statistics of the v2 protocol. On the request's
 * loop; the counters of other loops are read while those write them.
 *
 * The versions are walked through twice, first to count and then to copy them. The list of versions
 * is this loop's own view, which does not change in between. */
#include "metrics/page/model_statistics.h"

#include "management/management.h"
#include "scheduler/queue/model_queue.h"

struct collecting {
    struct cn_str name, version;
    struct cn_arena *arena;
    struct cn_v2_model_stats *list; /* NULL in the first walk */
    uint32_t n;
    bool knows_name;
};

static void
take_version(void *ctx, struct cn_model_queue *queue, bool is_ready)
{
    struct collecting *collecting = ctx;
    const struct cn_infer_stats *stats = cn_model_queue_infer_stats(queue);
    struct cn_str name = cn_str_from(cn_model_queue_name(queue));
    struct cn_str version = cn_str_from(cn_model_queue_version(queue));
    struct cn_v2_model_stats *at;

    if (!stats || !is_ready || (collecting->name.len && !cn_str_eq(collecting->name, name)))
        return;
    collecting->knows_name = true;
    if (collecting->version.len && !cn_str_eq(collecting->version, version))
        return;
    if (collecting->list) {
        at = &collecting->list[collecting->n];
        at->name = cn_arena_str(collecting->arena, name).ptr;
        at->version = cn_arena_str(collecting->arena, version).ptr;
        cn_infer_read(stats, collecting->arena, &at->counts);
    }
    collecting->n++;
}

int
cn_v2_stats_collect(struct cn_management *management, struct cn_str name, struct cn_str version,
                    struct cn_arena *arena, struct cn_v2_model_stats **out, uint32_t *n,
                    struct cn_error *err)
{
    struct collecting collecting = {.name = name, .version = version, .arena = arena};

    cn_management_each(management, take_version, &collecting);
    if (name.len && !collecting.knows_name)
        return cn_fail(err, CN_E_BAD_REQUEST, "requested model '%.*s' is not available",
                       CN_STR_ARG(name));
    if (name.len && collecting.n == 0)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "requested model version is not available for model '%.*s'",
                       CN_STR_ARG(name));
    collecting.list = cn_arena_alloc(arena, (collecting.n + 1) * sizeof(*collecting.list));
    collecting.n = 0;
    cn_management_each(management, take_version, &collecting);
    *out = collecting.list;
    *n = collecting.n;
    return 0;
}
