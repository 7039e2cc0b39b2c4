/* management/startup_models.c - registers the models that were named at the start of the server.
 * Loop 0, with visits to the file thread and, for the list of a web server, to a download thread.
 *
 * cn_management_start() begins to register all of them: those of the command line, or all of the
 * model store, and those of a snapshot. Two numbers say how far the start is. `unreserved` counts
 * the models whose name and version are not in the registry yet, and `starting` those that are
 * neither up nor failed. Each has one more for whatever may still name further models: the function
 * itself, and the list of a store that is being fetched (cn_management_start_hold). The model with
 * which `starting` becomes 0 ends the start (start_done).
 */
#include <stdio.h>
#include <string.h>

#include "archiver/archive/archive_path.h"
#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"
#include "management/cluster/cluster.h"
#include "management/management.h"
#include "management/management_priv.h"
#include "management/models/download.h"
#include "management/models/lifecycle.h"
#include "management/models/model_cache.h"
#include "management/models/snapshot.h"
#include "management/models/unpacked.h"
#include "management/nodes/nodes.h"
#include "management/repository/find_archive.h"
#include "management/repository/model_index.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"

void
cn_management_set_starting(struct cn_management *management, bool starting)
{
    const char *kind = cn_unready_word(CN_UNREADY_STARTING);

    if (starting)
        cn_health_set(&management->health, kind, "models",
                      "models named at start are still being loaded");
    else
        cn_health_clear(&management->health, kind, "models");
}

struct starting {
    struct cn_management *management;
    char *what; /* FILE or NAME=FILE */
};

#define SHOWN_ARCHIVES 5 /* of a store that lacks the model that was named at start */

/* Appends to the first failure what the model store has: the file that was probably meant, or some
 * of its archives. */
static void
add_what_there_is(struct cn_management *management, const char *what)
{
    const char *equals = strrchr(what, '='), *file = cn_basename(equals ? equals + 1 : what), *near;
    const char *store = management->config->model_store;
    char **names = NULL, *text = management->first_failure;
    size_t cap = sizeof management->first_failure, len = strlen(text);
    uint32_t n = 0;

    if (!store || cn_model_store_is_remote(store) ||
        cn_model_store_list(store, &names, &n, &(struct cn_error){0}) != 0)
        return;
    near = cn_suggest(cn_str_from(file), (const char *const *)names, n);
    if (near)
        snprintf(text + len, cap - len, " (did you mean %s?)", near);
    else if (n == 0)
        snprintf(text + len, cap - len, "; the model store %s has no archive", store);
    for (uint32_t i = 0; !near && i < n && i < SHOWN_ARCHIVES; i++, len = strlen(text))
        i == 0 ? snprintf(text + len, cap - len, "; the model store %s has %s", store, names[i])
               : snprintf(text + len, cap - len, ", %s", names[i]);
    for (uint32_t i = 0; i < n; i++)
        cn_free(names[i]);
    cn_free(names);
}

/* Notes a model that could not be loaded. If only its workers failed, the model is registered and
 * is tried again: then its workers are missing, which the registry counts. With
 * --strict-readiness=false, readiness does not wait for what could not be registered. */
static void
note_failure(struct cn_management *management, const struct starting *starting,
             const struct cn_lifecycle_result *result)
{
    if (management->failed++ == 0) {
        snprintf(management->first_failure, sizeof management->first_failure, "%s: %s",
                 starting->what, result->text);
        if (result->code == CN_E_MODEL_NOT_FOUND)
            add_what_there_is(management, starting->what);
    }
    if (result->code != CN_E_LOAD_FAILED && management->config->strict_readiness)
        cn_health_set(&management->health, cn_unready_word(CN_UNREADY_MODEL_FAILED), starting->what,
                      result->text);
}

struct removal {
    struct cn_management *management;
    struct cn_file_task task;
};

static void
work_remove_unused(struct cn_file_task *task)
{
    struct removal *removal = cn_container_of(task, struct removal, task);

    cn_unpacked_remove_rest(cn_state_dir_unpacked(removal->management->state));
}

static void
done_remove_unused(struct cn_file_task *task)
{
    struct removal *removal = cn_container_of(task, struct removal, task);
    struct cn_management *management = removal->management;

    cn_free(removal);
    cn_management_op_end(management);
}

/* Removes archives that an earlier server unpacked and that this start did not need. */
static void
remove_unused(struct cn_management *management)
{
    struct removal *removal = cn_alloc(sizeof *removal);

    cn_management_op_begin(management);
    removal->management = management;
    removal->task.work = work_remove_unused;
    removal->task.done = done_remove_unused;
    cn_file_thread_run(management->files, &removal->task);
}

static void
tell_started(struct cn_snapshot_wait *wait)
{
    struct cn_management *management = cn_container_of(wait, struct cn_management, start_wait);
    void (*on_done)(void *ctx, unsigned failed) = management->on_started;

    management->on_started = NULL;
    on_done(management->started_ctx, management->failed);
}

/* One model of the start is up or has failed. With the last one the server is started: unused files
 * go, the store is polled, stores are watched, and the first snapshot is written. */
static void
start_done(struct cn_management *management)
{
    if (--management->starting > 0)
        return;
    cn_management_set_starting(management, false);
    remove_unused(management);
    atomic_store_explicit(&management->started, true, memory_order_relaxed);
    cn_snapshot_started(management);
    cn_repository_started(management->repository);
    cn_stores_started(management->stores);
    cn_nodes_changed(management->nodes);
    management->start_wait.done = tell_started;
    cn_snapshot_wait(management, &management->start_wait);
}

static void
on_registered(void *ctx, const struct cn_lifecycle_result *result)
{
    struct starting *starting = ctx;
    struct cn_management *management = starting->management;
    char model[512], reason[CN_ERROR_MESSAGE_MAX];

    if (result->code) {
        note_failure(management, starting, result);
        cn_log(CN_LOG_ERROR, "event=model_failed model=%s reason=%s",
               cn_log_quote(starting->what, strlen(starting->what), model, sizeof model),
               cn_log_quote(result->text, strlen(result->text), reason, sizeof reason));
    }
    cn_free(starting->what);
    cn_free(starting);
    start_done(management);
}

/* The settings of a model of which only the place is given. */
static const struct cn_model_settings nothing_said = {.min_workers = -1,
                                                      .max_workers = -1,
                                                      .batch_size = -1,
                                                      .max_batch_delay_ms = -1,
                                                      .response_timeout_s = -1,
                                                      .startup_timeout_s = -1};

static void
start_model(struct cn_management *management, const char *name, const char *file,
            const char *digest, const struct cn_model_settings *settings)
{
    struct starting *starting = cn_alloc(sizeof *starting);
    struct cn_register_call call = {
        .request = {.url = file,
                    .model_name = name,
                    .batch_size = settings->batch_size,
                    .max_batch_delay_ms = settings->max_batch_delay_ms,
                    .initial_workers = settings->min_workers,
                    .response_timeout_s = settings->response_timeout_s,
                    .startup_timeout_s = settings->startup_timeout_s,
                    .max_workers = settings->max_workers},
        .digest = digest,
        .synchronous = true,
        .at_startup = true,
    };
    struct cn_buf what;

    cn_buf_init(&what, 0);
    cn_buf_printf(&what, "%s%s%s", name ? name : "", name ? "=" : "", file);
    starting->management = management;
    starting->what = cn_buf_take(&what, NULL);
    management->starting++;
    management->unreserved++;
    cn_cluster_register(management, &call, on_registered, starting);
}

/* The model store cannot be listed. */
static void
fail_all(struct cn_management *management, const struct cn_error *err)
{
    char reason[CN_ERROR_MESSAGE_MAX];

    management->failed++;
    snprintf(management->first_failure, sizeof management->first_failure, "%s", err->message);
    cn_log(CN_LOG_ERROR, "event=model_failed model=all reason=%s",
           cn_log_quote(err->message, strlen(err->message), reason, sizeof reason));
}

/* The list of the archives of an http(s) model store, while it is fetched. */
struct indexing {
    struct cn_management *management;
    struct cn_file_task task;
    struct cn_model_index index;
    struct cn_error err;
    int rc;
};

static void
work_index(struct cn_file_task *task)
{
    struct indexing *indexing = cn_container_of(task, struct indexing, task);

    indexing->rc =
        cn_model_cache_index(indexing->management->cache, &indexing->index, &indexing->err);
}

static void
done_index(struct cn_file_task *task)
{
    struct indexing *indexing = cn_container_of(task, struct indexing, task);
    struct cn_management *management = indexing->management;

    if (indexing->rc)
        fail_all(management, &indexing->err);
    for (uint32_t i = 0; i < indexing->index.n; i++) {
        const struct cn_model_index_entry *entry = &indexing->index.entries[i];

        start_model(management, NULL, entry->file, entry->digest[0] ? entry->digest : NULL,
                    &nothing_said);
    }
    cn_model_index_fini(&indexing->index);
    cn_free(indexing);
    cn_management_start_release(management);
    cn_management_op_end(management);
}

static void
start_index(struct cn_management *management)
{
    struct indexing *indexing = cn_alloc(sizeof *indexing);

    cn_management_op_begin(management);
    cn_management_start_hold(management);
    indexing->management = management;
    indexing->task.work = work_index;
    indexing->task.done = done_index;
    cn_file_thread_run(management->downloaders, &indexing->task);
}

static void
start_all(struct cn_management *management)
{
    struct cn_error err;
    char **names;
    uint32_t count, i;

    if (cn_model_store_is_remote(management->config->model_store)) {
        start_index(management);
        return;
    }
    if (cn_model_store_list(management->config->model_store, &names, &count, &err)) {
        fail_all(management, &err);
        return;
    }
    for (i = 0; i < count; i++) {
        start_model(management, NULL, names[i], NULL, &nothing_said);
        cn_free(names[i]);
    }
    cn_free(names);
}

/* Starts the models of a snapshot. The first version of a name becomes its default, so those that
 * were defaults come first; apart from that, registrations keep their order. */
static void
start_restored(struct cn_management *management, bool defaults)
{
    const struct cn_server_config *config = management->config;
    uint32_t i;

    for (i = 0; i < config->n_restored; i++) {
        const struct cn_model_settings *model = &config->restored[i];

        if (model->is_default == defaults)
            start_model(management, model->name, model->mar_name, NULL, model);
    }
}

static void
on_nothing_to_start(void *ctx)
{
    cn_management_start_release(ctx);
}

static void
start_named(struct cn_management *management)
{
    const struct cn_server_config *config = management->config;
    uint32_t i;

    if ((config->n_models == 1 && !config->models[0].name &&
         cn_str_eq_nocase(cn_str_from(config->models[0].file), CN_STR("all"))) ||
        (config->n_models == 0 && config->model_control_mode == CN_CONTROL_POLL)) {
        start_all(management);
    } else {
        for (i = 0; i < config->n_models; i++)
            start_model(management, config->models[i].name, config->models[i].file, NULL,
                        &nothing_said);
    }
    start_restored(management, true);
    start_restored(management, false);
}

void
cn_management_start_release(struct cn_management *management)
{
    cn_management_reserved(management);
    start_done(management);
}

void
cn_management_start(struct cn_management *management, void (*on_done)(void *ctx, unsigned failed),
                    void *ctx)
{
    cn_assert_on_loop(management->home);
    management->on_started = on_done;
    management->started_ctx = ctx;
    management->starting = 1; /* one for this function, ended in a later turn */
    management->unreserved = 1;
    if (management->cluster)
        cn_cluster_start(management->cluster, start_named);
    else
        start_named(management);
    cn_call_on(management->home, on_nothing_to_start, management);
}
