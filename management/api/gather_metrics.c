/* management/api/gather_metrics.c - what the model versions count, gathered from their queues'
 * loops. Loop 0.
 *
 * Counters are plain numbers that only the loop of their queue changes. So each pool is asked by a
 * message for a copy, and the order is answered when the last copy has come. Name and version are
 * copied before, because a version may be gone by then.
 */
#include <string.h>

#include "core/memory/mem.h"
#include "management/management_priv.h"

struct gathering;

struct part {
    struct gathering *gathering;
    struct cn_worker_pool_facts facts;
    struct cn_buf labels;
    struct {
        char *name, *version; /* copies: the version may be gone when all have answered */
    } about;
};

struct gathering {
    struct cn_management *management;
    struct cn_metrics_order *order;
    unsigned n, left;
    struct part *parts;
};

static void
end_gathering(struct gathering *gathering)
{
    struct cn_management *management = gathering->management;
    struct cn_model_counted *models = cn_alloc((gathering->n + 1) * sizeof *models);
    unsigned i;

    for (i = 0; i < gathering->n; i++)
        models[i] = (struct cn_model_counted){
            .name = gathering->parts[i].about.name,
            .version = gathering->parts[i].about.version,
            .labels = gathering->parts[i].labels.data,
            .metrics = &gathering->parts[i].facts.metrics,
            .series = &gathering->parts[i].facts.series,
            .workers = gathering->parts[i].facts.workers,
            .n_workers = gathering->parts[i].facts.n_workers,
        };
    gathering->order->on_done(gathering->order, models, gathering->n);
    for (i = 0; i < gathering->n; i++) {
        cn_worker_pool_facts_fini(&gathering->parts[i].facts);
        cn_buf_fini(&gathering->parts[i].labels);
        cn_free(gathering->parts[i].about.name);
        cn_free(gathering->parts[i].about.version);
    }
    cn_free(models);
    cn_free(gathering->parts);
    cn_free(gathering);
    cn_management_op_end(management);
}

static void
on_facts(struct cn_worker_pool_facts *facts)
{
    struct gathering *gathering = cn_container_of(facts, struct part, facts)->gathering;

    if (--gathering->left == 0)
        end_gathering(gathering);
}

/* Makes the labels of a version, with a NUL behind them. */
static void
make_labels(struct cn_buf *out, const struct cn_model_about *about)
{
    cn_buf_init(out, 0);
    cn_buf_puts(out, "model=\"");
    cn_metrics_put_label(out, cn_str_from(about->name));
    cn_buf_puts(out, "\",version=\"");
    cn_metrics_put_label(out, cn_str_from(about->version));
    cn_buf_append(out, "\"", 2);
}

/* Calls `visit` for each version that is up. */
static void
each_version(struct cn_management *management,
             void (*visit)(struct gathering *gathering, const struct cn_version *version),
             struct gathering *gathering)
{
    struct cn_list *m, *v;

    cn_list_for_each(m, cn_registry_models(management->registry)) {
        cn_list_for_each(v, &cn_container_of(m, struct cn_model, link)->versions) {
            const struct cn_version *version = cn_container_of(v, struct cn_version, link);

            if (version->phase == CN_VERSION_UP)
                visit(gathering, version);
        }
    }
}

static void
count_version(struct gathering *gathering, const struct cn_version *version)
{
    (void)version;
    gathering->n++;
}

static void
ask_version(struct gathering *gathering, const struct cn_version *version)
{
    struct part *part = &gathering->parts[gathering->left++ - 1];

    part->gathering = gathering;
    make_labels(&part->labels, &version->about);
    part->about.name = cn_strdup(version->about.name);
    part->about.version = cn_strdup(version->about.version);
    part->facts.on_done = on_facts;
    part->facts.wants_series = true;
    cn_worker_pool_facts(version->pool, &part->facts);
}

static void
count_unready(struct cn_management *management)
{
    uint32_t counts[CN_N_UNREADY];

    cn_management_unready(management, counts);
    for (int i = 0; i < CN_N_UNREADY; i++)
        cn_metrics_set_unready(cn_loop_metrics(management->home), CN_M_UNREADY, (enum cn_unready)i,
                               counts[i]);
}

void
cn_management_metrics(struct cn_management *management, struct cn_metrics_order *order)
{
    struct gathering *gathering = cn_alloc(sizeof *gathering);

    cn_management_op_begin(management);
    count_unready(management);
    gathering->management = management;
    gathering->order = order;
    each_version(management, count_version, gathering);
    gathering->parts = cn_alloc((gathering->n + 1) * sizeof *gathering->parts);
    gathering->left = 1; /* one for this function, so that it cannot end while pools are asked */
    each_version(management, ask_version, gathering);
    if (--gathering->left == 0)
        end_gathering(gathering);
}
