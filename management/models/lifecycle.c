/* management/models/lifecycle.c - a version is scaled, and a version goes. Loop 0.
 *
 * A version goes in steps, whatever the reason is (struct closing): it leaves the registry; all
 * loops take a view without it, so no new job can find its queue (on_unpublished); its pool closes,
 * which ends the jobs, the sequences if that is asked for, and the workers (on_pool_closed, called
 * once for the close and once for the memory of the pool); files are deleted on the file thread
 * (work_remove); and at last the version is freed. The whole is one operation, so a drain waits for
 * it.
 *
 * What is deleted differs: unregistering deletes the store and a downloaded archive, a drain
 * deletes nothing, and a reload keeps the store for the next version.
 */
#include "management/models/lifecycle.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/environments/environments.h"
#include "management/models/lifecycle_priv.h"
#include "management/models/snapshot.h"
#include "management/models/unpacked.h"
#include "management/repository/download_signature.h"

static void
answer(cn_lifecycle_done_fn done, void *ctx, int code, int http_status, const char *text)
{
    done(ctx, &(struct cn_lifecycle_result){code, http_status, text, NULL, NULL});
}

/* --- a version goes */

struct closing {
    struct cn_management *management;
    struct cn_version *version;
    struct cn_worker_pool_close order;
    struct cn_file_task task;
    bool delete_store, delete_archive;
    void (*on_done)(void *ctx);
    void *ctx;
};

void
cn_version_free(struct cn_version *version)
{
    cn_environment_release(version->environment);
    cn_model_about_fini(&version->about);
    cn_free(version->store_dir);
    cn_free(version);
}

static void
work_remove(struct cn_file_task *task)
{
    struct closing *closing = cn_container_of(task, struct closing, task);
    struct cn_version *version = closing->version;

    /* A server that stops leaves unpacked files to the next start, which then finds space for them
     * even if the disk has filled up since. */
    if (closing->order.code != CN_E_DRAINING)
        cn_model_about_remove_files(&version->about);
    if (closing->delete_archive && version->about.archive)
        cn_download_remove(version->about.archive);
    if (closing->delete_store && version->store_dir)
        cn_state_dir_remove_store(version->store_dir);
}

static void
done_remove(struct cn_file_task *task)
{
    struct closing *closing = cn_container_of(task, struct closing, task);
    struct cn_management *management = closing->management;

    cn_log(CN_LOG_INFO, "event=model_closed model=%s version=%s store=%s",
           closing->version->about.name, closing->version->about.version,
           closing->delete_store ? "deleted" : "kept");
    cn_registry_forget(closing->version);
    cn_stores_forget(management->stores, closing->version);
    cn_version_free(closing->version);
    if (closing->on_done)
        closing->on_done(closing->ctx);
    cn_free(closing);
    cn_management_op_end(management);
}

static void
on_pool_closed(struct cn_worker_pool_close *order)
{
    struct closing *closing = cn_container_of(order, struct closing, order);

    closing->version->pool = NULL;
    if (order->pool) {
        cn_worker_pool_release(order);
        return;
    }
    closing->task.work = work_remove;
    closing->task.done = done_remove;
    cn_file_thread_run(closing->management->files, &closing->task);
}

static void
on_unpublished(void *ctx)
{
    struct closing *closing = ctx;

    if (closing->management->hurried)
        closing->order.drop_waiting = true;
    cn_worker_pool_close(closing->version->pool, &closing->order);
}

void
cn_version_close(struct cn_management *management, struct cn_version *version,
                 const struct cn_close_call *call, void (*on_done)(void *ctx), void *ctx)
{
    struct closing *closing = cn_alloc(sizeof *closing);
    struct cn_version *next_default;

    cn_assert(version->phase == CN_VERSION_UP);
    cn_management_op_begin(management);
    closing->management = management;
    closing->version = version;
    closing->delete_store = call->delete_store;
    closing->delete_archive = call->delete_archive;
    closing->on_done = on_done;
    closing->ctx = ctx;
    closing->order.code = call->code;
    closing->order.drop_waiting = call->drop_waiting;
    closing->order.close_sequences = call->close_sequences;
    closing->order.everywhere = call->everywhere;
    closing->order.on_done = on_pool_closed;
    snprintf(closing->order.reason, sizeof closing->order.reason, "%s", call->reason);
    cn_timer_cancel(&version->retire_timer);
    next_default = cn_registry_remove(management->registry, version);
    if (next_default && call->code != CN_E_DRAINING)
        cn_swap_default_again(next_default, call->code == CN_E_MODEL_LOADING);
    cn_registry_publish(management->registry, on_unpublished, closing);
}

void
cn_lifecycle_close_all(struct cn_management *management)
{
    struct cn_list *models = cn_registry_models(management->registry), *model_node, *node;
    struct cn_model *model;
    struct cn_version *version, *found;

    /* Closing a version changes the lists, so the search begins anew after each. */
    do {
        found = NULL;
        cn_list_for_each(model_node, models) {
            model = cn_container_of(model_node, struct cn_model, link);
            cn_list_for_each(node, &model->versions) {
                version = cn_container_of(node, struct cn_version, link);
                if (version->phase == CN_VERSION_UP)
                    found = version;
            }
        }
        if (found)
            cn_version_close(
                management, found,
                &(struct cn_close_call){.code = CN_E_DRAINING, .reason = "the server is stopping"},
                NULL, NULL);
    } while (found);
}

/* --- unregister */

struct unregistering {
    cn_lifecycle_done_fn done;
    void *ctx;
    char name[];
};

static void
on_unregistered(void *ctx)
{
    struct unregistering *op = ctx;
    char text[400];

    snprintf(text, sizeof text, "Model \"%s\" unregistered", op->name);
    answer(op->done, op->ctx, 0, 200, text);
    cn_free(op);
}

static void
close_version(struct cn_management *management, struct cn_version *version,
              struct cn_close_call *call, cn_lifecycle_done_fn done, void *ctx)
{
    const char *name = version->about.name;
    struct unregistering *op = cn_alloc(sizeof *op + strlen(name) + 1);

    op->done = done;
    op->ctx = ctx;
    memcpy(op->name, name, strlen(name) + 1);
    call->drop_waiting = true;
    call->delete_archive = true;
    cn_version_close(management, version, call, on_unregistered, op);
    cn_snapshot_changed(management);
}

void
cn_lifecycle_remove(struct cn_management *management, struct cn_version *version, bool everywhere,
                    cn_lifecycle_done_fn done, void *ctx)
{
    char reason[400];

    snprintf(reason, sizeof reason, "model %s version %s was unregistered", version->about.name,
             version->about.version);
    close_version(management, version,
                  &(struct cn_close_call){.code = CN_E_MODEL_NOT_FOUND,
                                          .reason = reason,
                                          .close_sequences = true,
                                          .everywhere = everywhere,
                                          .delete_store = true},
                  done, ctx);
}

void
cn_lifecycle_undo(struct cn_management *management, struct cn_version *version, const char *reason,
                  cn_lifecycle_done_fn done, void *ctx)
{
    close_version(management, version,
                  &(struct cn_close_call){.code = CN_E_LOAD_FAILED, .reason = reason}, done, ctx);
}

void
cn_lifecycle_unregister(struct cn_management *management, const char *name,
                        const char *version_name, cn_lifecycle_done_fn done, void *ctx)
{
    struct cn_version *version;
    struct cn_error err;

    version = cn_management_find_version(management, name, version_name, &err);
    if (!version) {
        answer(done, ctx, err.code, 0, err.message);
        return;
    }
    if (version == version->model->default_version &&
        version->model->versions.next != version->model->versions.prev) {
        cn_fail(&err, CN_E_VERSION_IN_USE, "Cannot remove default version for model %s", name);
        answer(done, ctx, err.code, 0, err.message);
        return;
    }
    cn_lifecycle_remove(management, version, false, done, ctx);
}

/* --- scale */

struct scaling {
    struct cn_management *management;
    struct cn_worker_pool_scale order;
    cn_lifecycle_done_fn done;
    void *ctx;
    bool answered, with_version;
    char *name, *version;
};

static void
answer_scaled(struct scaling *op)
{
    struct cn_error err;
    char text[600];

    if (op->order.outcome == CN_SCALE_DONE) {
        snprintf(text, sizeof text, "Workers scaled to %u for model: %s%s%s", op->order.min,
                 op->name, op->with_version ? ", version: " : "",
                 op->with_version ? op->version : "");
        answer(op->done, op->ctx, 0, 200, text);
    } else if (op->order.outcome == CN_SCALE_SUPERSEDED) {
        answer(op->done, op->ctx, 0, 206, "Workers scaling in progress...");
    } else {
        cn_fail(&err, CN_E_LOAD_FAILED, "Failed to start workers for model %s version: %s: %s",
                op->name, op->version, op->order.why);
        answer(op->done, op->ctx, err.code, 0, err.message);
    }
}

static void
on_scaled(struct cn_worker_pool_scale *order)
{
    struct scaling *op = cn_container_of(order, struct scaling, order);
    struct cn_management *management = op->management;

    if (!op->answered)
        answer_scaled(op);
    cn_free(op->name);
    cn_free(op->version);
    cn_free(op);
    cn_management_op_end(management);
}

void
cn_lifecycle_scale(struct cn_management *management, const struct cn_scale_call *call,
                   cn_lifecycle_done_fn done, void *ctx)
{
    struct scaling *op;
    struct cn_version *version;
    struct cn_error err;

    version = cn_management_find_version(management, call->name, call->version, &err);
    if (!version) {
        answer(done, ctx, err.code, 0, err.message);
        return;
    }
    version->min_workers = call->min;
    version->max_workers = call->max;
    cn_log(CN_LOG_INFO, "event=model_scaled model=%s version=%s min_workers=%u max_workers=%u",
           version->about.name, version->about.version, call->min, call->max);
    op = cn_alloc(sizeof *op);
    cn_management_op_begin(management);
    op->management = management;
    op->done = done;
    op->ctx = ctx;
    op->name = cn_strdup(version->about.name);
    op->version = cn_strdup(version->about.version);
    op->with_version = call->version && *call->version;
    op->order.min = call->min;
    op->order.max = call->max;
    op->order.on_done = on_scaled;
    op->answered = !call->synchronous;
    cn_snapshot_changed(management);
    cn_worker_pool_scale(version->pool, &op->order);
    if (!call->synchronous)
        answer(done, ctx, 0, 202, "Processing worker updates...");
}
