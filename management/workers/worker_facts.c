/* management/workers/worker_facts.c - what others can learn of a worker: its name, its state, and
 * the facts for descriptions. Nothing here changes it. On the model queue's loop. */
#include <stdio.h>

#include "management/workers/supervisor_priv.h"
#include "scheduler/workers/workers.h"

/* A worker that has loaded the model before counts as coming up again, until this many loads in a
 * row have failed. */
#define HOPELESS_FAILURES 3

const char *
cn_worker_state_word(enum cn_worker_state state)
{
    static const char *const words[] = {"starting", "loading", "ready", "backoff", "stopping"};

    return words[state];
}

const char *
cn_worker_name(const struct cn_worker_process *worker, char out[32])
{
    if (cn_worker_is_zygote(worker))
        return "zygote";
    snprintf(out, 32, "worker %u", worker->index);
    return out;
}

void
cn_worker_label(const struct cn_worker_process *worker, char *out, size_t out_bytes)
{
    const struct cn_model_about *about = worker->spec->about;

    if (cn_worker_is_zygote(
            /* a zygote's children write their own label over it, so it is longer than theirs */
            worker))
        snprintf(out, out_bytes, "%s/%s#zygote", about->name, about->version);
    else
        snprintf(out, out_bytes, "%s/%s#%u", about->name, about->version, worker->index);
}

bool
cn_worker_has_process(const struct cn_worker_process *worker)
{
    return worker->pid != 0;
}

enum cn_worker_state
cn_worker_state(const struct cn_worker_process *worker)
{
    return worker->state;
}

uint32_t
cn_worker_index(const struct cn_worker_process *worker)
{
    return worker->index;
}

bool
cn_worker_declined(const struct cn_worker_process *zygote)
{
    return zygote->declined;
}

bool
cn_worker_is_coming(const struct cn_worker_process *worker)
{
    if (worker->state == CN_WORKER_BACKOFF)
        return worker->ever_loaded && worker->failures < HOPELESS_FAILURES;
    return worker->state != CN_WORKER_STOPPING;
}

void
cn_worker_facts(const struct cn_worker_process *worker, struct cn_worker_facts *out)
{
    struct cn_worker_link_stats stats = {0};

    if (worker->link)
        cn_worker_link_stats(worker->link, &stats);
    *out = (struct cn_worker_facts){
        .id = worker->id,
        .index = worker->index,
        .restarts = worker->restarts,
        .state = worker->state,
        .pid = worker->pid,
        .started_wall_ms = worker->started_wall_ms,
        .stats = worker->stats,
        .loaded = worker->loaded,
        .load_ms = worker->load_ms,
        .waits = worker->order != NULL,
        .live_sequences = stats.live_sequences,
        .busy_rows = stats.busy_rows,
        .busy_ms = stats.busy_ms,
    };
    stats.busy_sequence = cn_sequence_id_shown(stats.busy_sequence);
    snprintf(out->busy_sequence, sizeof out->busy_sequence, "%.*s",
             CN_STR_ARG(stats.busy_sequence));
    snprintf(out->last_exit, sizeof out->last_exit, "%s", worker->last_exit);
    if (worker->state == CN_WORKER_READY)
        snprintf(out->device, sizeof out->device, "%s", worker->device);
    if (worker->loaded) {
        snprintf(out->walls, sizeof out->walls, "%s", worker->walls);
        snprintf(out->lacking, sizeof out->lacking, "%s", worker->lacking);
        snprintf(out->unbounded, sizeof out->unbounded, "%s", worker->unbounded);
    }
    snprintf(out->warning, sizeof out->warning, "%s", worker->warning);
    snprintf(out->progress, sizeof out->progress, "%s",
             worker->order ? worker->spec->zygote->progress : worker->progress);
}
