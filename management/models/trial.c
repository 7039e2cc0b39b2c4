/* management/models/trial.c - one worker loads an archive and ends. Loop 0, with visits to the file
 * thread.
 *
 * A trial answers one question: can this archive be served? It unpacks the archive, makes a pool
 * without a store, orders one worker, and closes the pool again. The answer is the outcome of the
 * order. The pool is on loop 0 and in no view, so no request finds its queue. The old version keeps
 * its store and serves meanwhile.
 */
#include "management/models/trial.h"

#include <stdio.h>

#include "core/memory/mem.h"
#include "management/management_priv.h"
#include "management/models/unpacked.h"
#include "management/repository/model_store.h"

#define FRAME_BYTES (1024u * 1024) /* no step is sent, only the load */

struct cn_trial {
    struct cn_list link; /* in management->trials */
    struct cn_management *management;
    struct cn_model_request request;
    cn_trial_done_fn done;
    void *ctx;
    struct cn_file_task task;
    struct cn_model_about about;
    struct cn_environment_want want;
    struct cn_worker_pool *pool; /* NULL: there is none yet, or no longer */
    struct cn_worker_pool_health health;
    struct cn_worker_pool_start start;
    struct cn_worker_pool_scale scale;
    struct cn_worker_pool_close close;
    bool closing;
    struct cn_error err;
};

static void
finish(struct cn_trial *trial)
{
    struct cn_management *management = trial->management;

    cn_list_remove(&trial->link);
    trial->done(trial->ctx, trial->err.code ? &trial->err : NULL);
    cn_free(trial);
    cn_management_op_end(management);
}

static void
work_remove(struct cn_file_task *task)
{
    struct cn_trial *trial = cn_container_of(task, struct cn_trial, task);

    cn_model_about_remove_files(&trial->about);
}

static void
done_remove(struct cn_file_task *task)
{
    struct cn_trial *trial = cn_container_of(task, struct cn_trial, task);

    cn_environment_release(trial->want.environment);
    cn_model_about_fini(&trial->about);
    finish(trial);
}

static void
on_closed(struct cn_worker_pool_close *order)
{
    struct cn_trial *trial = cn_container_of(order, struct cn_trial, close);

    trial->pool = NULL;
    if (order->pool) {
        cn_worker_pool_release(order);
        return;
    }
    trial->task.work = work_remove;
    trial->task.done = done_remove;
    cn_file_thread_run(trial->management->files, &trial->task);
}

static void
close_pool(struct cn_trial *trial)
{
    if (trial->closing)
        return;
    trial->closing = true;
    trial->close.code = CN_E_UNAVAILABLE;
    trial->close.drop_waiting = true;
    trial->close.on_done = on_closed;
    snprintf(trial->close.reason, sizeof trial->close.reason, "this was only a trial");
    cn_worker_pool_close(trial->pool, &trial->close);
}

static void
on_scaled(struct cn_worker_pool_scale *scale)
{
    struct cn_trial *trial = cn_container_of(scale, struct cn_trial, scale);

    if (scale->outcome == CN_SCALE_FAILED)
        cn_fail(&trial->err, CN_E_LOAD_FAILED,
                "Failed to start workers for model %s version: %s: %s", trial->about.name,
                trial->about.version, scale->why);
    else if (scale->outcome == CN_SCALE_SUPERSEDED)
        cn_fail(&trial->err, CN_E_DRAINING, "the server is stopping");
    close_pool(trial);
}

/* The start and the scale order reach the pool one after the other; only the answer to the second
 * matters. */
static void
on_started(struct cn_worker_pool_start *start)
{
    (void)start;
}

static void
load_worker(struct cn_trial *trial)
{
    struct cn_management *management = trial->management;

    trial->about.config.durability = CN_DURABILITY_NONE; /* the old version uses the store */
    trial->about.config.preload = false;                 /* one process is enough */
    trial->pool = cn_worker_pool_create(&(struct cn_worker_pool_spec){
        .loop = management->home,
        .home = management->home,
        .about = &trial->about,
        .store_dir = "",
        .program = management->worker_program,
        .lock_fd = cn_state_dir_lock_fd(management->state),
        .max_frame_bytes = trial->about.config.answer_max_bytes + FRAME_BYTES,
        .next_worker_id = &management->next_worker_id,
        .health = &trial->health,
        .family = {cn_management_version_at, management},
    });
    trial->start.on_done = on_started;
    cn_worker_pool_start(trial->pool, &trial->start);
    trial->scale.min = trial->scale.max = 1;
    trial->scale.on_done = on_scaled;
    cn_worker_pool_scale(trial->pool, &trial->scale);
}

static void
work_unpack(struct cn_file_task *task)
{
    struct cn_trial *trial = cn_container_of(task, struct cn_trial, task);
    const struct cn_server_config *config = trial->management->config;
    char *path, *place;

    if (cn_model_store_resolve(config->model_store, trial->request.url, &path, &trial->err))
        return;
    place = cn_state_dir_unpack_place(trial->management->state);
    cn_model_load(path, place, cn_state_dir_unpacked(trial->management->state), &trial->request,
                  config, false, &trial->about, &trial->err);
    cn_free(place);
    cn_free(path);
}

/* Ends a trial that has no pool. */
static void
give_up(struct cn_trial *trial)
{
    trial->task.work = work_remove;
    trial->task.done = done_remove;
    cn_file_thread_run(trial->management->files, &trial->task);
}

static bool
stop_if_draining(struct cn_trial *trial)
{
    if (!atomic_load(&trial->management->draining))
        return false;
    cn_fail(&trial->err, CN_E_DRAINING, "the server is stopping");
    give_up(trial);
    return true;
}

static void
on_environment(struct cn_environment_want *want)
{
    struct cn_trial *trial = cn_container_of(want, struct cn_trial, want);

    if (!want->environment) {
        trial->err = want->err;
        give_up(trial);
        return;
    }
    cn_free(trial->about.python);
    trial->about.python = cn_strdup(cn_environment_python(want->environment));
    if (!stop_if_draining(trial))
        load_worker(trial);
}

static void
want_environment(struct cn_trial *trial)
{
    trial->want.model = trial->about.name;
    trial->want.version = trial->about.version;
    trial->want.dir = trial->about.dir;
    trial->want.requirements = trial->about.requirements;
    trial->want.python = trial->about.python;
    trial->want.package = trial->about.python_package;
    trial->want.on_done = on_environment;
    cn_environments_want(trial->management->environments, &trial->want);
}

static void
done_unpack(struct cn_file_task *task)
{
    struct cn_trial *trial = cn_container_of(task, struct cn_trial, task);

    if (trial->err.code)
        finish(trial);
    else if (stop_if_draining(trial))
        return;
    else if (trial->about.requirements)
        want_environment(trial);
    else
        load_worker(trial);
}

void
cn_trial_run(struct cn_management *management, const struct cn_model_request *request,
             cn_trial_done_fn done, void *ctx)
{
    struct cn_trial *trial = cn_alloc(sizeof *trial);

    cn_management_op_begin(management);
    trial->management = management;
    trial->request = *request;
    trial->done = done;
    trial->ctx = ctx;
    cn_list_init(&trial->scale.link);
    cn_list_init(&trial->link);
    cn_list_push_back(&management->trials, &trial->link);
    trial->task.work = work_unpack;
    trial->task.done = done_unpack;
    cn_file_thread_run(management->files, &trial->task);
}

void
cn_trial_stop_all(struct cn_management *management)
{
    struct cn_list *node;

    cn_list_for_each(node, &management->trials) {
        struct cn_trial *trial = cn_container_of(node, struct cn_trial, link);

        if (trial->pool)
            close_pool(trial);
    }
}
