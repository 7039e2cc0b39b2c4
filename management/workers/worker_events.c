/* management/workers/worker_events.c - what the link to a worker's process reports: loaded,
 * progress, lost, overdue. On the model queue's loop.
 *
 * LOADED makes a worker ready: its link is attached to the queue, which sends it jobs from then on.
 * A zygote gets no jobs; it begins to carry out the orders that waited for it. A zygote may also
 * decline, if its model cannot be forked. Then its workers load the model by themselves.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/time/clock.h"
#include "management/workers/supervisor_priv.h"
#include "scheduler/workers/workers.h"
#include "torchserve/metrics/metric_lines.h"

static void
log_load_time(const struct cn_worker_process *worker)
{
    char dims[700];

    if (!cn_ts_logs())
        return;
    snprintf(dims, sizeof dims, "WorkerName:W-%u-%.256s_%.256s,Level:Host", worker->id,
             worker->spec->about->name, worker->spec->about->version);
    cn_ts_log(CN_LOG_METRICS, "WorkerLoadTime.Milliseconds", (double)worker->load_ms, dims, NULL);
}

/* The zygote cannot be forked. This is not an error: its workers load the model themselves, and the
 * process ends by itself. */
static void
decline(struct cn_worker_process *zygote, struct cn_str reason)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    cn_log(CN_LOG_INFO, "event=zygote_declined model=%s version=%s pid=%d reason=%s",
           zygote->spec->about->name, zygote->spec->about->version, (int)zygote->pid,
           cn_log_quote(reason.ptr, reason.len, quoted, sizeof quoted));
    zygote->declined = true;
    zygote->state = CN_WORKER_STOPPING;
    cn_worker_arm(zygote, CN_WORKER_STOP_GRACE_MS);
    cn_zygote_end(zygote);
}

/* The kernel is the same for all workers, so the log says once what it lacks. */
static void
take_walls(struct cn_worker_process *worker, const struct cn_loaded *loaded)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char quoted[sizeof worker->lacking + 64];

    snprintf(worker->walls, sizeof worker->walls, "%.*s", CN_STR_ARG(loaded->walls));
    snprintf(worker->lacking, sizeof worker->lacking, "%.*s", CN_STR_ARG(loaded->lacking));
    if (!worker->lacking[0] || atomic_flag_test_and_set(&said))
        return;
    cn_log(CN_LOG_INFO, "event=walls_lacking model=%s version=%s walls=%s",
           worker->spec->about->name, worker->spec->about->version,
           cn_log_quote(worker->lacking, strlen(worker->lacking), quoted, sizeof quoted));
}

static void
on_loaded(void *owner, const struct cn_loaded *loaded)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC);
    char quoted[256];

    if (worker->state != CN_WORKER_LOADING || worker->exited || worker->killed_for[0])
        return;
    cn_timer_cancel(&worker->timer);
    if (loaded->error_code == CN_E_UNIMPLEMENTED && cn_worker_is_zygote(worker)) {
        decline(worker, loaded->message);
        return;
    }
    if (loaded->error_code != 0) {
        snprintf(worker->load_error, sizeof worker->load_error, "%.*s",
                 CN_STR_ARG(loaded->message));
        cn_worker_kill_for(worker, "it could not load the model");
        return;
    }
    worker->state = CN_WORKER_READY;
    if (worker->ever_loaded)
        cn_worker_say_as_torchserve(worker, "Auto recovery succeeded, reset recoveryStartTS");
    worker->loaded = worker->ever_loaded = true;
    worker->failures = 0;
    worker->progress[0] = '\0';
    snprintf(worker->device, sizeof worker->device, "%.*s", CN_STR_ARG(loaded->device));
    snprintf(worker->warning, sizeof worker->warning, "%.*s", CN_STR_ARG(loaded->warning));
    take_walls(worker, loaded);
    worker->load_ms = cn_now_ms() - worker->started_ms;
    if (cn_worker_is_zygote(worker)) {
        cn_log(CN_LOG_INFO, "event=zygote_ready model=%s version=%s pid=%d load_ms=%llu",
               worker->spec->about->name, worker->spec->about->version, (int)worker->pid,
               (unsigned long long)worker->load_ms);
        cn_zygote_begin(worker);
        return;
    }
    worker->attached = true;
    log_load_time(worker);
    cn_worker_count(worker, CN_M_WORKERS_READY, 1);
    cn_log(CN_LOG_INFO,
           "event=worker_ready model=%s version=%s worker=%u pid=%d load_ms=%llu runtime=%s",
           worker->spec->about->name, worker->spec->about->version, worker->index, (int)worker->pid,
           (unsigned long long)worker->load_ms,
           cn_log_quote(loaded->message.ptr, loaded->message.len, quoted, sizeof quoted));
    cn_model_queue_attach(worker->spec->queue, worker->link);
    worker->ops->on_change(worker->owner, worker);
}

static void
on_stats(void *owner, const struct cn_worker_stats *stats)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC);

    worker->stats = *stats;
}

static void
on_progress(void *owner, const struct cn_progress *progress)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC);

    if (progress->total)
        snprintf(worker->progress, sizeof worker->progress, "%.*s, %u of %u done",
                 CN_STR_ARG(progress->what), progress->done, progress->total);
    else
        snprintf(worker->progress, sizeof worker->progress, "%.*s", CN_STR_ARG(progress->what));
}

static void
on_forked(void *owner, const struct cn_forked *forked)
{
    cn_zygote_on_forked(cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC), forked);
}

static void
on_lost(void *owner, const char *why)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC);

    worker->lost = true;
    snprintf(worker->lost_for, sizeof worker->lost_for, "%s", why);
    /* Most often the process is about to end by itself, and it is worth a moment to learn how. */
    if (!worker->exited)
        cn_worker_arm(worker, worker->state == CN_WORKER_STOPPING ? CN_WORKER_STOP_GRACE_MS
                                                                  : CN_WORKER_END_GRACE_MS);
    cn_worker_check_end(worker);
}

static void
on_overdue(void *owner, const char *why)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, owner, CN_WORKER_MAGIC);

    worker->overdue = true;
    worker->lost = true;
    cn_worker_kill_for(worker, why);
    cn_worker_check_end(worker);
}

const struct cn_worker_link_ops cn_worker_link_events = {
    .on_loaded = on_loaded,
    .on_stats = on_stats,
    .on_lost = on_lost,
    .on_overdue = on_overdue,
    .on_progress = on_progress,
    .on_forked = on_forked,
};
