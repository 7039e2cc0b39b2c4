/* management/api/watch.c - chooses and describes the versions that the page shows. Loop 0; the
 * facts come from the queues' loops.
 *
 * Ranking looks at two atomic numbers of each version, which any thread may read. With 10,000
 * versions that takes a few milliseconds, because nothing of it is in the processor's cache. So a
 * large server is ranked only at every RANK_EVERY-th look, and in between the same versions are
 * described again.
 *
 * As in describe.c, a version cannot be freed while its pool is asked: a close asks the same loop
 * after us. */
#include "management/api/watch.h"

#include <string.h>

#include "core/memory/mem.h"
#include "management/api/describe.h"

#define RANK_EACH_LOOK 1000 /* up to this many versions are ranked at each look */
#define RANK_EVERY 10
#define TROUBLE (UINT64_C(1) << 62) /* the rank of a version with too few workers */

struct cn_watch_pick {
    char *name, *version;
    uint64_t rank;
};

struct look {
    struct cn_management *management;
    struct cn_watch_order *order;
    unsigned n, left;
    struct part *parts;
};

struct part {
    struct look *look;
    const struct cn_version *version;
    struct cn_watched watched;
    char *name, *number; /* copies: the version may be gone when all have answered */
    struct cn_worker_pool_facts facts;
};

/* --- the choice */

static void
drop_picks(struct cn_watch_order *order)
{
    for (unsigned i = 0; i < order->n_picks; i++) {
        cn_free(order->picks[i].name);
        cn_free(order->picks[i].version);
    }
    order->n_picks = 0;
}

void
cn_watch_order_fini(struct cn_watch_order *order)
{
    drop_picks(order);
    cn_free(order->picks);
    order->picks = NULL;
}

static bool
is_named(const struct cn_watch_order *order, const char *name)
{
    for (unsigned i = 0; i < order->n_names; i++)
        if (strcmp(order->names[i], name) == 0)
            return true;
    return false;
}

/* How much a version should be shown. */
static uint64_t
rank_of(const struct cn_watch_order *order, struct cn_version *version, bool *has_trouble)
{
    const uint64_t jobs = cn_metrics_get(cn_model_queue_metrics(version->queue), CN_M_JOBS);
    const uint64_t since = jobs - version->watched_jobs;
    const uint32_t ready = atomic_load_explicit(&version->health.ready, memory_order_relaxed);
    const uint32_t wanted = atomic_load_explicit(&version->health.wanted, memory_order_relaxed);

    version->watched_jobs = jobs;
    *has_trouble = ready < wanted;
    return since + (*has_trouble ? TROUBLE : 0) +
           (is_named(order, version->about.name) ? 2 * TROUBLE : 0);
}

/* Puts a version into the list of the best, which is sorted by rank; equal ones keep their order.
 */
static void
offer(struct cn_watch_order *order, const struct cn_version *version, uint64_t rank)
{
    struct cn_watch_pick *picks = order->picks, *last;
    unsigned at;

    if (order->n_picks == order->most) {
        last = &picks[order->n_picks - 1];
        if (rank <= last->rank)
            return;
        cn_free(last->name);
        cn_free(last->version);
        order->n_picks--;
    }
    for (at = order->n_picks; at > 0 && picks[at - 1].rank < rank; at--)
        picks[at] = picks[at - 1];
    picks[at] = (struct cn_watch_pick){cn_strdup(version->about.name),
                                       cn_strdup(version->about.version), rank};
    order->n_picks++;
}

static void
rank(struct cn_management *management, struct cn_watch_order *order)
{
    struct cn_list *m, *v;
    bool has_trouble;

    drop_picks(order);
    order->totals = (struct cn_watch_totals){0};
    cn_list_for_each(m, cn_registry_models(management->registry)) {
        order->totals.models++;
        cn_list_for_each(v, &cn_container_of(m, struct cn_model, link)->versions) {
            struct cn_version *version = cn_container_of(v, struct cn_version, link);

            if (version->phase != CN_VERSION_UP)
                continue;
            offer(order, version, rank_of(order, version, &has_trouble));
            order->totals.versions++;
            order->totals.unready += has_trouble;
            order->totals.jobs += version->watched_jobs;
        }
    }
    order->looks_left = order->totals.versions > RANK_EACH_LOOK ? RANK_EVERY : 0;
}

/* --- the description */

static void
end_look(struct look *look)
{
    struct cn_management *management = look->management;
    struct cn_watched *watched = cn_alloc((look->n + 1) * sizeof *watched);

    for (unsigned i = 0; i < look->n; i++)
        watched[i] = look->parts[i].watched;
    look->order->on_done(look->order, watched, look->n);
    for (unsigned i = 0; i < look->n; i++) {
        json_decref(look->parts[i].watched.about);
        cn_worker_pool_facts_fini(&look->parts[i].facts);
        cn_free(look->parts[i].name);
        cn_free(look->parts[i].number);
    }
    cn_free(watched);
    cn_free(look->parts);
    cn_free(look);
    cn_management_op_end(management);
}

static void
on_facts(struct cn_worker_pool_facts *facts)
{
    struct part *part = cn_container_of(facts, struct part, facts);

    part->watched.about = cn_describe_version(part->version, facts);
    part->watched.metrics = &facts->metrics;
    if (--part->look->left == 0)
        end_look(part->look);
}

static void
ask(struct look *look, const struct cn_version *version)
{
    struct part *part = &look->parts[look->n++];

    part->look = look;
    part->version = version;
    part->name = cn_strdup(version->about.name);
    part->number = cn_strdup(version->about.version);
    part->watched.name = part->name;
    part->watched.version = part->number;
    part->watched.is_default = version->model->default_version == version;
    part->facts.on_done = on_facts;
    look->left++;
    cn_worker_pool_facts(version->pool, &part->facts);
}

void
cn_management_watch(struct cn_management *management, struct cn_watch_order *order)
{
    struct look *look = cn_alloc(sizeof *look);

    if (!order->picks)
        order->picks = cn_alloc(CN_WATCH_VERSIONS_MAX * sizeof *order->picks);
    if (order->looks_left > 0)
        order->looks_left--;
    if (order->looks_left == 0)
        rank(management, order);
    cn_management_op_begin(management);
    look->management = management;
    look->order = order;
    look->parts = cn_alloc((order->n_picks + 1) * sizeof *look->parts);
    look->left = 1; /* one for this function, so that it cannot end while pools are asked */
    for (unsigned i = 0; i < order->n_picks; i++) {
        struct cn_version *version = cn_management_find_version(management, order->picks[i].name,
                                                                order->picks[i].version, NULL);

        if (version && version->phase == CN_VERSION_UP)
            ask(look, version);
    }
    if (--look->left == 0)
        end_look(look);
}

void
cn_management_each_reason(struct cn_management *management,
                          void (*fn)(void *ctx, const char *kind, const char *subject,
                                     const char *text),
                          void *ctx)
{
    struct cn_list *node;

    cn_list_for_each(node, &management->health.reasons) {
        const struct cn_health_reason *reason =
            cn_container_of(node, struct cn_health_reason, link);

        fn(ctx, reason->kind, reason->subject, reason->text);
    }
}
