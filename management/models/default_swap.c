/* management/models/default_swap.c - set-default, and what becomes of the version that was the
 * default. Loop 0.
 *
 * A swap changes two things: the new version's queue gets its swap policy, and the registry names
 * another default. Live sequences stay where they are, until their next step comes.
 *
 * With a deadline, the old version is retired when it is over: it runs no more steps, and its
 * sequences move, begin anew or are closed as their next step comes
 * (scheduler/swap/version_swap.h). It stays for as long as tombstones are kept, so that late
 * clients still learn what happened. Then it is unregistered with what is left. One timer,
 * retire_timer, serves both times. If the old version becomes the default again before that, by an
 * order or because the new version goes, cn_swap_take_back() undoes all of it.
 */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/cluster/cluster.h"
#include "management/models/lifecycle.h"
#include "management/models/lifecycle_priv.h"
#include "management/models/snapshot.h"

#define RETIRE_AGAIN_MS 5000

/* --- the old version goes */

static void
unregister_retired(struct cn_version *version)
{
    struct cn_management *management = version->management;
    char reason[400];

    cn_log(CN_LOG_INFO,
           "event=version_goes model=%s version=%s note=\"its swap deadline has passed\"",
           version->about.name, version->about.version);
    snprintf(reason, sizeof reason, "model %s version %s is gone, its swap deadline has passed",
             version->about.name, version->about.version);
    cn_version_close(management, version,
                     &(struct cn_close_call){.code = CN_E_MODEL_NOT_FOUND,
                                             .reason = reason,
                                             .drop_waiting = true,
                                             .close_sequences = true,
                                             .delete_store = true,
                                             .delete_archive = true},
                     NULL, NULL);
    cn_snapshot_changed(management);
}

static void
retire_timer(struct cn_timer *timer)
{
    struct cn_version *version = cn_container_of(timer, struct cn_version, retire_timer);
    struct cn_loop *home = version->management->home;

    if (version->retired && version->wanted_id[0]) {
        /* All nodes close it when it has left the set of models. Until then this is tried again. */
        cn_cluster_retired(version->management->cluster, version);
        cn_timer_set(cn_loop_wheel(home), timer, cn_loop_now_ms(home) + RETIRE_AGAIN_MS);
        return;
    }
    if (version->retired) {
        unregister_retired(version);
        return;
    }
    if (version == version->model->default_version) { /* the reload of the new version failed */
        cn_swap_take_back(version);
        return;
    }
    version->retired = true;
    cn_log(CN_LOG_INFO,
           "event=version_retired model=%s version=%s note=\"its swap deadline has "
           "passed\"",
           version->about.name, version->about.version);
    cn_swap_tell_queue(version);
    cn_timer_set(cn_loop_wheel(home), timer,
                 cn_loop_now_ms(home) + version->about.config.tombstone_ms);
}

void
cn_lifecycle_init_retiring(struct cn_management *management, struct cn_version *version)
{
    version->management = management;
    version->swap_policy = version->about.config.swap_policy;
    cn_timer_init(&version->retire_timer, retire_timer);
}

static void
set_deadline(struct cn_version *version, uint64_t after_ms)
{
    struct cn_loop *home = version->management->home;

    version->retire_wall_ms = cn_wall_ms() + after_ms;
    cn_timer_set(cn_loop_wheel(home), &version->retire_timer, cn_loop_now_ms(home) + after_ms);
}

void
cn_lifecycle_retire(struct cn_version *version, uint64_t after_ms)
{
    set_deadline(version, after_ms);
}

/* --- set-default */

struct defaulting {
    struct cn_management *management;
    cn_lifecycle_done_fn done;
    void *ctx;
    char text[400];
};

static void
on_default_published(void *ctx)
{
    struct defaulting *op = ctx;
    struct cn_management *management = op->management;

    op->done(op->ctx, &(struct cn_lifecycle_result){0, 200, op->text, NULL, NULL});
    cn_free(op);
    cn_management_op_end(management);
}

void
cn_lifecycle_set_default(struct cn_management *management, const struct cn_default_call *call,
                         cn_lifecycle_done_fn done, void *ctx)
{
    struct cn_version *version, *before;
    struct defaulting *op;
    struct cn_error err;
    uint64_t deadline_ms;

    version = cn_management_find_version(management, call->name, call->version, &err);
    if (!version) {
        if (err.code == CN_E_VERSION_NOT_FOUND) /* TorchServe's text has no colons here */
            cn_fail(&err, CN_E_VERSION_NOT_FOUND, "Model version %s does not exist for model %s",
                    call->version, call->name);
        done(ctx, &(struct cn_lifecycle_result){err.code, 0, err.message, NULL, NULL});
        return;
    }
    op = cn_alloc(sizeof *op);
    cn_management_op_begin(management);
    op->management = management;
    op->done = done;
    op->ctx = ctx;
    snprintf(op->text, sizeof op->text,
             "Default version successfully updated for model \"%s\" to \"%s\"", call->name,
             call->version);
    before = version->model->default_version;
    version->swap_policy = call->swap_policy < 0 ? version->about.config.swap_policy
                                                 : (enum cn_swap_policy)call->swap_policy;
    deadline_ms = call->swap_deadline_ms < 0 ? version->about.config.swap_deadline_ms
                                             : (uint64_t)call->swap_deadline_ms;
    cn_swap_take_back(version);
    cn_swap_tell_queue(version); /* before the view of any loop sends it a step */
    if (before != version && before->phase == CN_VERSION_UP && deadline_ms)
        set_deadline(before, deadline_ms);
    cn_registry_set_default(version);
    cn_snapshot_changed(management);
    cn_registry_publish(management->registry, on_default_published, op);
}
