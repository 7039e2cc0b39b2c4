/* management/repository/repository.c - loads and unloads models by name, for clients of the v2
 * protocol and for the poll of the model store. Loop 0, with visits to the file thread.
 *
 * A job is a load or an unload. It waits in repository->jobs until no earlier job has the same
 * name, and it ends in job_end(), which starts the next one. Jobs of different names run side by
 * side.
 *
 * What a load does depends on what it finds:
 * - The same archive is up and has not changed (same stamp): nothing.
 * - The archive has changed and has a new version number: it becomes a version beside the old one,
 *   and the default, as set-default does it.
 * - The archive has changed and has the same number: one worker tries whether it can be loaded
 *   (trial.h). Only then the old version is closed; its steps run to their end and its stored
 *   sequences stay, and the new one takes its place.
 * - The archive cannot be loaded: nothing that is up changes. The failure is kept, so that the
 *   index and the model's description show it (repository_failures.c).
 *
 * An unload by a client deletes what the model stored, as unregistering does. An unload because a
 * file vanished keeps the store, because the file may come back.
 */
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/models/lifecycle.h"
#include "management/models/lifecycle_priv.h"
#include "management/models/snapshot.h"
#include "management/models/trial.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"
#include "management/repository/triton_repository.h"

/* A load or an unload. */
struct job {
    struct cn_list link;
    struct cn_repository *repository;
    struct cn_repository_order *order; /* NULL: it was answered, or no client waits */
    bool load, running;
    bool by_file; /* `name` is the file name of an archive, which itself says the model's name */
    char *name, *config; /* config: the load's own configuration; NULL: it has none */
    unsigned closing;    /* versions that an unload still closes */
    struct cn_file_task task;
    char *url;           /* the archive that the file thread found; NULL: none */
    uint64_t stamp;      /* stamp of the archive as it is now */
    char *why_not;       /* why it cannot be packed (--model-repository); NULL: nothing is wrong */
    const char *version; /* the number that is_of_number() looks for */
    char *number;        /* number of the version that is to be replaced */
    bool was_default;    /* that version was the default, and the new one is to be it again */
};

static void run_next(struct cn_repository *repository);

/* --- answers */

static void
answer(struct job *job, const struct cn_error *err)
{
    struct cn_repository_order *order = job->order;

    job->order = NULL;
    if (err)
        cn_log(CN_LOG_WARN, "event=repository_%s_failed model=%s reason=\"%.300s\"",
               job->load ? "load" : "unload", job->name, err->message);
    if (!order)
        return;
    order->err.code = 0;
    if (err)
        order->err = *err;
    cn_repository_answer(order);
}

static void
job_end(struct job *job)
{
    struct cn_repository *repository = job->repository;
    struct cn_management *management = repository->management;

    cn_assert(!job->order);
    cn_list_remove(&job->link);
    cn_free(job->name);
    cn_free(job->config);
    cn_free(job->url);
    cn_free(job->number);
    cn_free(job->why_not);
    cn_free(job);
    run_next(repository);
    cn_management_op_end(management);
}

static void
fail(struct job *job, int code, const char *text)
{
    struct cn_error err;

    cn_fail(&err, code, "%s", text);
    answer(job, &err);
    job_end(job);
}

/* --- which versions are meant */

/* The first version that is up and for which `is_it` says true; NULL: none. */
static struct cn_version *
next_version(struct job *job,
             bool (*is_it)(const struct job *job, const struct cn_version *version))
{
    struct cn_list *m, *v;

    cn_list_for_each(m, cn_registry_models(job->repository->management->registry)) {
        cn_list_for_each(v, &cn_container_of(m, struct cn_model, link)->versions) {
            struct cn_version *version = cn_container_of(v, struct cn_version, link);

            if (version->phase == CN_VERSION_UP && is_it(job, version))
                return version;
        }
    }
    return NULL;
}

static bool
is_of_name(const struct job *job, const struct cn_version *version)
{
    return strcmp(version->about.name, job->name) == 0;
}

/* Was the version made from the archive that the job is about? */
static bool
is_of_archive(const struct job *job, const struct cn_version *version)
{
    const char *file = job->url ? job->url : job->name;

    return strcmp(version->about.url, file) == 0 && (job->by_file || is_of_name(job, version));
}

/* Was the version made from that archive as it is now? */
static bool
is_current(const struct job *job, const struct cn_version *version)
{
    return is_of_archive(job, version) && version->about.stamp == job->stamp && job->stamp != 0;
}

static bool
is_of_number(const struct job *job, const struct cn_version *version)
{
    return is_of_archive(job, version) && strcmp(version->about.version, job->version) == 0;
}

/* --- load */

static void register_now(struct job *job);

static struct cn_model_request
request_of(const struct job *job)
{
    return (struct cn_model_request){.url = job->url,
                                     .model_name = job->by_file ? NULL : job->name,
                                     .config = job->config,
                                     .batch_size = -1,
                                     .max_batch_delay_ms = -1,
                                     .initial_workers = -1,
                                     .response_timeout_s = -1,
                                     .startup_timeout_s = -1,
                                     .max_workers = -1};
}

/* The load failed, and nothing that is up has changed. A broken file is an operator's business, so
 * the log names it; a client that loads by name gets the reason as its answer. */
static void
load_failed(struct job *job, int code, const char *text)
{
    struct cn_repository *repository = job->repository;

    cn_repository_take_note(repository, job->name, NULL, text);
    if (code != CN_E_DRAINING) {
        cn_repository_failed(repository, job->url, text);
        if (job->by_file)
            cn_log(CN_LOG_ERROR,
                   "event=archive_broken archive=%s note=\"its loaded versions are still served; "
                   "the archive is loaded again when the file changes\"",
                   job->url);
    }
    fail(job, code == CN_E_DRAINING ? CN_E_DRAINING : CN_E_BAD_REQUEST, text);
}

static void
on_replaced(void *ctx)
{
    register_now(ctx);
}

/* The trial is over. If the archive can be loaded, the old version with the same number is
 * closed. */
static void
on_tried(void *ctx, const struct cn_error *err)
{
    struct job *job = ctx;
    struct cn_version *old;
    char reason[400];

    if (err) {
        load_failed(job, err->code, err->message);
        return;
    }
    job->version = job->number;
    old = next_version(job, is_of_number);
    if (!old) { /* the old version was unregistered meanwhile */
        register_now(job);
        return;
    }
    job->was_default = old == old->model->default_version;
    snprintf(reason, sizeof reason, "model %s version %s is being reloaded; try again",
             old->about.name, old->about.version);
    cn_version_close(job->repository->management, old,
                     &(struct cn_close_call){.code = CN_E_MODEL_LOADING, .reason = reason},
                     on_replaced, job);
}

/* Begins to replace the version with this number. False: no such version was made from the
 * archive. */
static bool
replace(struct job *job, const char *number)
{
    struct cn_model_request request = request_of(job);

    job->version = number;
    if (!number || !next_version(job, is_of_number))
        return false;
    cn_free(job->number);
    job->number = cn_strdup(number);
    cn_trial_run(job->repository->management, &request, on_tried, job);
    return true;
}

static void
on_default_set(void *ctx, const struct cn_lifecycle_result *result)
{
    struct job *job = ctx;
    struct cn_error err;

    if (result->code)
        cn_fail(&err, result->code, "%s", result->text);
    answer(job, result->code ? &err : NULL);
    job_end(job);
}

/* The registration is over. A conflict means that the version number is taken. If that version was
 * made from the same archive, it is replaced; otherwise the conflict is the answer. */
static void
on_registered(void *ctx, const struct cn_lifecycle_result *result)
{
    struct job *job = ctx;
    struct cn_version *version, *before;
    bool succeeds;

    if (result->code == CN_E_CONFLICT && replace(job, result->version))
        return;
    if (result->code) {
        load_failed(job, result->code, result->text);
        return;
    }
    cn_repository_take_note(job->repository, job->name, NULL, NULL);
    cn_repository_mended(job->repository, job->url);
    job->version = result->version;
    version = next_version(job, is_of_number);
    before = version ? version->model->default_version : NULL;
    succeeds = before && is_of_archive(job, before);
    if (before != version && (succeeds || job->was_default)) {
        /* A version of another archive was the default only meanwhile, and is not to be retired. */
        cn_lifecycle_set_default(job->repository->management,
                                 &(struct cn_default_call){.name = version->about.name,
                                                           .version = version->about.version,
                                                           .swap_policy = -1,
                                                           .swap_deadline_ms = succeeds ? -1 : 0},
                                 on_default_set, job);
        return;
    }
    answer(job, NULL);
    job_end(job);
}

static void
register_now(struct job *job)
{
    struct cn_register_call call = {.request = request_of(job), .synchronous = true};

    cn_lifecycle_register(job->repository->management, &call, on_registered, job);
}

/* On the file thread: finds the archive and its stamp. With --model-repository the model's folder
 * is packed again first. */
static void
work_find(struct cn_file_task *task)
{
    struct job *job = cn_container_of(task, struct job, task);
    const struct cn_server_config *config = job->repository->management->config;
    const char *store = config->model_store;
    struct cn_error err;
    char *path;

    if (config->model_repository && !job->by_file &&
        cn_import_again(config->model_repository, store, job->name, &err) &&
        err.code != CN_E_NOT_FOUND) {
        job->why_not = cn_strdup(err.message);
        return;
    }
    if (job->by_file)
        job->url = cn_strdup(job->name);
    else if (!job->url)
        job->url = cn_model_store_find(store, job->name);
    if (job->url && cn_model_store_resolve(store, job->url, &path, &err) == 0) {
        job->stamp = cn_model_store_stamp(path);
        cn_free(path);
    }
}

static void
done_find(struct cn_file_task *task)
{
    struct job *job = cn_container_of(task, struct job, task);
    char text[400];

    if (job->why_not) {
        cn_repository_take_note(job->repository, job->name, NULL, job->why_not);
        fail(job, CN_E_BAD_REQUEST, job->why_not);
    } else if (!job->stamp) {
        snprintf(text, sizeof text, "failed to load '%.200s', failed to poll from model repository",
                 job->name);
        fail(job, CN_E_INTERNAL, text);
    } else if (atomic_load(&job->repository->management->draining)) {
        fail(job, CN_E_DRAINING, "the server is stopping");
    } else if (!job->config && next_version(job, is_current)) {
        cn_repository_mended(job->repository, job->url); /* the old file is back */
        answer(job, NULL);
        job_end(job);
    } else {
        register_now(job);
    }
}

/* Begins a load. A model that was loaded from elsewhere than the store is loaded again from
 * there. */
static void
begin_load(struct job *job)
{
    struct cn_version *version = job->by_file ? NULL : next_version(job, is_of_name);

    if (version)
        job->url = cn_strdup(version->about.url);
    job->task.work = work_find;
    job->task.done = done_find;
    cn_file_thread_run(job->repository->management->files, &job->task);
}

/* --- unload */

static void
on_unloaded(void *ctx)
{
    struct job *job = ctx;

    if (--job->closing == 0)
        job_end(job);
}

/* Closes all versions that the unload means. An unload by name also deletes what the model stored,
 * as unregistering does. If a file vanished, it may come back, so the store stays. */
static void
unload(struct job *job)
{
    struct cn_version *version;
    char reason[400];

    job->closing = 1;
    if (job->by_file)
        cn_repository_mended(job->repository, job->name);
    while ((version = next_version(job, job->by_file ? is_of_archive : is_of_name))) {
        snprintf(reason, sizeof reason, "model %s version %s was unloaded", version->about.name,
                 version->about.version);
        cn_repository_take_note(job->repository, version->about.name, version->about.version,
                                "unloaded");
        job->closing++;
        cn_version_close(job->repository->management, version,
                         &(struct cn_close_call){.code = CN_E_MODEL_NOT_FOUND,
                                                 .reason = reason,
                                                 .close_sequences = !job->by_file,
                                                 .delete_store = !job->by_file},
                         on_unloaded, job);
    }
}

/* No loop finds the model any more, so the unload is answered. */
static void
on_unpublished(void *ctx)
{
    struct job *job = ctx;

    answer(job, NULL);
    on_unloaded(job);
}

static void
begin_unload(struct job *job)
{
    unload(job);
    cn_snapshot_changed(job->repository->management);
    cn_registry_publish(job->repository->management->registry, on_unpublished, job);
}

/* --- orders */

/* Must the job wait for an earlier one with the same name? */
static bool
is_blocked(const struct job *job)
{
    struct cn_list *node;

    cn_list_for_each(node, &job->repository->jobs) {
        const struct job *other = cn_container_of(node, struct job, link);

        if (other == job)
            return false;
        if (strcmp(other->name, job->name) == 0)
            return true;
    }
    return false;
}

static void
run_next(struct cn_repository *repository)
{
    struct cn_list *node;

    cn_list_for_each(node, &repository->jobs) {
        struct job *job = cn_container_of(node, struct job, link);

        if (job->running || is_blocked(job))
            continue;
        job->running = true;
        if (job->load)
            begin_load(job);
        else
            begin_unload(job);
        return; /* the list may have changed; the end of each job calls this again */
    }
}

static void
add_job(struct cn_repository *repository, struct cn_repository_order *order, bool load,
        bool by_file, char *name, char *config)
{
    struct job *job = cn_alloc(sizeof *job);

    cn_management_op_begin(repository->management);
    job->repository = repository;
    job->order = order;
    job->load = load;
    job->by_file = by_file;
    job->name = name;
    job->config = config;
    cn_list_push_back(&repository->jobs, &job->link);
    run_next(repository);
}

void
cn_repository_load_file(struct cn_repository *repository, const char *file)
{
    add_job(repository, NULL, true, true, cn_strdup(file), NULL);
}

void
cn_repository_unload_file(struct cn_repository *repository, const char *file)
{
    add_job(repository, NULL, false, true, cn_strdup(file), NULL);
}

static void
order_came(struct cn_msg *msg)
{
    struct cn_repository_order *order = cn_container_of(msg, struct cn_repository_order, msg);
    struct cn_repository *repository = order->management->repository;

    cn_management_op_begin(order->management);
    if (cn_repository_check(order))
        cn_repository_answer(order);
    else if (order->what == CN_REPOSITORY_INDEX)
        cn_repository_index(repository, order);
    else
        add_job(repository, order, order->what == CN_REPOSITORY_LOAD, false,
                cn_strndup(order->name.ptr, order->name.len),
                order->config.len ? cn_strndup(order->config.ptr, order->config.len) : NULL);
}

void
cn_repository_run(struct cn_management *management, struct cn_repository_order *order)
{
    cn_assert_on_loop(order->origin);
    order->management = management;
    order->err.code = 0;
    order->n_entries = 0;
    cn_arena_init(&order->arena);
    order->msg.fn = order_came;
    cn_loop_post(management->home, &order->msg);
}

/* --- begin and end */

struct cn_repository *
cn_repository_create(struct cn_management *management)
{
    struct cn_repository *repository = cn_alloc(sizeof *repository);

    repository->management = management;
    cn_list_init(&repository->jobs);
    cn_list_init(&repository->notes);
    cn_list_init(&repository->failures);
    return repository;
}

void
cn_repository_destroy(struct cn_repository *repository)
{
    if (!repository)
        return;
    cn_repository_forget_notes(repository);
    cn_repository_forget_failures(repository);
    for (uint32_t i = 0; i < repository->n_seen; i++)
        cn_free(repository->seen[i].file);
    cn_free(repository->seen);
    cn_free(repository);
}
