/* management/pool/pool_temp.c - what happens if the workers of a pool have written more
 * temporary files than they may. On the queue's loop. */
#include <inttypes.h>
#include <stdio.h>

#include "core/log/log.h"
#include "management/pool/temp_watch.h"
#include "management/pool/worker_pool_priv.h"
#include "management/workers/supervisor.h"

/* All workers of the version share the folder, and nothing says which of them has filled it. So all
 * are killed, also the process from which they are forked. When all of them have ended, what is in
 * the folder is deleted, and only then new ones start: no worker meets files of those before it, or
 * loses its own. The folder itself stays, because the walls of new workers are built around it. */
static void
on_full(void *ctx)
{
    struct cn_worker_pool *pool = ctx;
    const struct cn_model_about *about = pool->spec.about;
    struct cn_list *node;
    char why[160];

    if (!pool->temp_watch) /* closed meanwhile */
        return;
    snprintf(why, sizeof why,
             "the temporary files of the model take more than %" PRIu64
             " bytes (--worker-temp-bytes, handler.limits.tempBytes); they are deleted",
             about->bounds.temp_bytes);
    cn_log(CN_LOG_WARN,
           "event=temporary_files_full model=%s version=%s max_bytes=%" PRIu64
           " note=\"its workers are killed, and the files deleted\"",
           about->name, about->version, about->bounds.temp_bytes);
    pool->workers_spec.held = true;
    cn_list_for_each(node, &pool->members)
        cn_worker_strike(cn_worker_pool_member_of(node)->worker, why);
    if (pool->workers_spec.zygote)
        cn_worker_strike(pool->workers_spec.zygote, why);
    cn_worker_pool_empty_temp(pool);
}

void
cn_worker_pool_empty_temp(struct cn_worker_pool *pool)
{
    const struct cn_worker_process *zygote = pool->workers_spec.zygote;

    if (!pool->workers_spec.held || pool->empties_temp || !pool->temp_watch ||
        cn_worker_pool_count(pool, cn_worker_has_process) > 0 ||
        (zygote && cn_worker_has_process(zygote)))
        return;
    pool->empties_temp = true;
    cn_temp_watch_empty(pool->temp_watch);
}

static void
on_emptied(void *ctx)
{
    struct cn_worker_pool *pool = ctx;
    struct cn_list *node;

    pool->workers_spec.held = pool->empties_temp = false;
    if (pool->workers_spec.zygote)
        cn_worker_go_on(pool->workers_spec.zygote);
    cn_list_for_each(node, &pool->members)
        cn_worker_go_on(cn_worker_pool_member_of(node)->worker);
}

void
cn_worker_pool_watch_temp(struct cn_worker_pool *pool)
{
    const struct cn_model_about *about = pool->spec.about;

    if (about->bounds.temp_bytes && about->temp_dir && *about->temp_dir)
        pool->temp_watch = cn_temp_watch_add(about->temp_dir, about->bounds.temp_bytes,
                                             pool->spec.loop, on_full, on_emptied, pool);
}

void
cn_worker_pool_unwatch_temp(struct cn_worker_pool *pool)
{
    cn_temp_watch_remove(pool->temp_watch);
    pool->temp_watch = NULL;
}
