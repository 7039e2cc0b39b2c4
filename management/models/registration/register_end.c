/* management/models/registration/register_end.c - how a registration ends: it is answered, or
 * undone and then answered. Loop 0, with a visit to the file thread.
 *
 * Before the queue exists, a failure goes to cn_registration_discard(), which undoes the steps.
 * After that, a version is undone by cn_version_close() like any other. go_on() waits for both the
 * publication and the workers, in whichever order they come, and answers. A registration that does
 * not wait for its workers (`synchronous` false) is answered as soon as it is published. */
#include <stdio.h>

#include "core/memory/mem.h"
#include "management/models/registration/registration_priv.h"
#include "management/models/snapshot.h"
#include "management/repository/download_signature.h"

static void
registration_free(struct registration *reg)
{
    struct cn_management *management = reg->management;

    cn_model_cache_release(management->cache, reg->cached);
    cn_free(reg->cached_url);
    cn_free(reg->digest);
    cn_free(reg->archive);
    cn_free(reg->url);
    cn_free(reg->model_name);
    cn_free(reg->handler);
    cn_free(reg->runtime);
    cn_free(reg->config);
    cn_free(reg);
    cn_management_op_end(management);
}

static void
answer(struct registration *reg, int code, int http_status, const char *text)
{
    if (reg->answered)
        return;
    reg->answered = true;
    if (!code && !reg->call.at_startup)
        cn_snapshot_changed(reg->management);
    if (!code && reg->version)
        cn_management_model_came(reg->management, &reg->version->about);
    reg->done(reg->ctx, &(struct cn_lifecycle_result){
                            code, http_status, text,
                            reg->version ? reg->version->about.version : reg->about.version,
                            reg->version ? reg->version->about.name : reg->about.name});
}

/* --- undoing */

static void
work_discard(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    cn_model_about_remove_files(&reg->about);
    if (reg->archive)
        cn_download_remove(reg->archive);
}

static void
done_discard(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    answer(reg, reg->rc, 0, reg->err.message);
    cn_model_about_fini(&reg->about);
    registration_free(reg);
}

static void
on_other_default(void *ctx)
{
    cn_management_op_end(ctx);
}

void
cn_registration_discard(struct registration *reg)
{
    if (reg->version) {
        /* Another version may be the default now. */
        cn_management_op_begin(reg->management);
        cn_registry_remove(reg->management->registry, reg->version);
        cn_registry_forget(reg->version);
        reg->about = reg->version->about;
        reg->archive = reg->about.archive;
        reg->about.archive = NULL;
        reg->version->about = (struct cn_model_about){0};
        cn_version_free(reg->version);
        reg->version = NULL;
        cn_registry_publish(reg->management->registry, on_other_default, reg->management);
    }
    reg->task.work = work_discard;
    reg->task.done = done_discard;
    cn_file_thread_run(reg->management->files, &reg->task);
}

bool
cn_registration_stop_if_draining(struct registration *reg)
{
    if (!atomic_load(&reg->management->draining))
        return false;
    reg->rc = cn_fail(&reg->err, CN_E_DRAINING, "the server is stopping");
    cn_registration_discard(reg);
    return true;
}

/* --- workers are up, or not */

static void
on_undone(void *ctx)
{
    struct registration *reg = ctx;

    reg->version = NULL; /* freed */
    answer(reg, reg->rc, 0, reg->err.message);
    registration_free(reg);
}

static void
answer_failure(struct registration *reg)
{
    const struct cn_model_about *about = &reg->version->about;

    reg->rc =
        cn_fail(&reg->err, CN_E_LOAD_FAILED, "Failed to start workers for model %s version: %s: %s",
                about->name, about->version, reg->scale.why);
    if (reg->call.synchronous && !reg->call.at_startup && !reg->call.keep &&
        reg->version->phase == CN_VERSION_UP) {
        /* The store stays: a broken handler must not cost its model the sequences. */
        cn_version_close(reg->management, reg->version,
                         &(struct cn_close_call){.code = CN_E_LOAD_FAILED,
                                                 .reason = reg->err.message,
                                                 .drop_waiting = true,
                                                 .delete_archive = true},
                         on_undone, reg);
        return;
    }
    answer(reg, reg->rc, 0, reg->err.message);
    registration_free(reg);
}

static void
answer_success(struct registration *reg)
{
    const struct cn_model_about *about = &reg->version->about;
    char text[600];

    if (reg->scale.min == 0 && cn_worker_pool_is_ready(&reg->version->health))
        snprintf(text, sizeof text,
                 "Model \"%s\" Version: %s registered with 0 initial workers. The first request "
                 "starts one.",
                 about->name, about->version);
    else if (reg->scale.min == 0)
        snprintf(
            text, sizeof text,
            "Model \"%s\" Version: %s registered with 0 initial workers. Use scale workers API "
            "to add workers for the model.",
            about->name, about->version);
    else
        snprintf(text, sizeof text, "Model \"%s\" Version: %s registered with %u initial workers",
                 about->name, about->version, reg->scale.min);
    answer(reg, 0, 200, text);
}

/* Goes on when the views and the workers are ready, in whichever order they come. */
static void
go_on(struct registration *reg)
{
    if (!reg->published)
        return;
    if (!reg->call.synchronous && !reg->answered) {
        if (reg->scale.min == 0)
            answer_success(reg);
        else
            answer(reg, 0, 202, "Processing worker updates...");
    }
    if (!reg->scaled)
        return;
    if (reg->scale.outcome == CN_SCALE_FAILED && reg->call.synchronous) {
        answer_failure(reg);
        return;
    }
    if (reg->scale.outcome == CN_SCALE_SUPERSEDED) {
        if (atomic_load(&reg->management->draining))
            answer(reg, CN_E_DRAINING, 0, "the server is stopping");
        else
            answer(reg, 0, 202, "Processing worker updates...");
    } else if (reg->scale.outcome == CN_SCALE_DONE) {
        answer_success(reg);
    }
    registration_free(reg);
}

void
cn_registration_on_scaled(struct cn_worker_pool_scale *scale)
{
    struct registration *reg = cn_container_of(scale, struct registration, scale);

    reg->scaled = true;
    cn_stores_look(reg->management->stores, reg->version);
    go_on(reg);
}

void
cn_registration_on_published(void *ctx)
{
    struct registration *reg = ctx;

    reg->published = true;
    go_on(reg);
}
