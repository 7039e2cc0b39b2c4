/* management/cluster/changes.c - register, scale, set-default and unregister on all nodes. Loop 0;
 * the wanted set is changed on the cluster's thread.
 *
 * A registration happens on this node first, so that a broken archive never reaches the others; if
 * the store then refuses it, because another node was faster or the store is away, it is undone
 * here. Everything else changes the set first and this node afterwards.
 *
 * The thread reads the set, applies the change, and writes the set conditionally. If another node
 * has written in between, the change is applied again, to what that node has written.
 *
 * A change lives from the call to the answer and goes back and forth between the two threads:
 *   loop 0   cn_cluster_scale() and the like fill a struct change and hand it to the thread (run)
 *   thread   attempt(): read the set, apply the change, write it if nobody has written since
 *   loop 0   done_change(): take the set that was written, then `next` does this node's part
 *   loop 0   answer(): the caller gets the result, and the change is freed
 * The other nodes see the new set at their next look and follow by themselves (reconcile.c). So the
 * answer says that the change is decided, and not that all nodes are done with it. */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/time/clock.h"
#include "management/cluster/cluster_priv.h"
#include "management/models/lifecycle_priv.h"

#define ATTEMPTS_MAX 16
#define CHANGES_MAX 256 /* that wait or are under way */

struct change {
    struct cn_cluster *cluster;
    struct cn_wanted_change what; /* strings of its own */
    cn_lifecycle_done_fn done;
    void *ctx;
    struct cn_file_task task;
    void (*next)(struct change *change); /* after the set has changed */
    struct cn_scale_call scale;
    struct cn_default_call to;
    int http_status; /* register: the answer, which waits for the store */
    char text[700];
    /* The outcome. */
    int rc;
    struct cn_error err;
    struct cn_wanted wanted;
    char token[CN_WANTED_TOKEN_MAX], id[CN_WANTED_ID_MAX];
};

static void
change_free(struct change *change)
{
    struct cn_management *management = change->cluster->management;

    change->cluster->n_changes--;
    cn_wanted_model_fini(&change->what.model);
    cn_wanted_fini(&change->wanted);
    cn_free(change);
    cn_management_op_end(management);
}

static void
answer(struct change *change, int code, int http_status, const char *text)
{
    if (change->done)
        change->done(change->ctx,
                     &(struct cn_lifecycle_result){.code = code,
                                                   .http_status = http_status,
                                                   .text = text,
                                                   .name = change->what.model.name,
                                                   .version = change->what.model.version});
    change_free(change);
}

static char *
copy(const char *text)
{
    return text ? cn_strdup(text) : NULL;
}

/* Returns NULL if too many changes are under way or the set was not read yet; the caller has its
 * answer then. */
static struct change *
change_new(struct cn_cluster *cluster, enum cn_wanted_kind kind, const char *name,
           const char *version, cn_lifecycle_done_fn done, void *ctx)
{
    struct change *change;
    struct cn_error err;

    if (cluster->n_changes >= CHANGES_MAX || !cluster->token[0]) {
        if (cluster->token[0])
            cn_fail(&err, CN_E_UNAVAILABLE, "%d changes of models are under way; try again",
                    CHANGES_MAX);
        else
            cn_fail(&err, CN_E_MODEL_LOADING,
                    "the server has not read the set of models from the shared store yet; try "
                    "again");
        done(ctx, &(struct cn_lifecycle_result){.code = err.code, .text = err.message});
        return NULL;
    }
    change = cn_alloc(sizeof *change);
    cn_management_op_begin(cluster->management);
    cluster->n_changes++;
    change->cluster = cluster;
    change->what.kind = kind;
    change->what.model.name = copy(name);
    change->what.model.version = copy(version);
    snprintf(change->what.change_id, sizeof change->what.change_id, "%016llx",
             (unsigned long long)cn_random_u64());
    change->done = done;
    change->ctx = ctx;
    return change;
}

/* --- on the thread */

/* One attempt. *over is false if another node has written in between. */
static int
attempt(struct change *change, bool *over)
{
    struct cn_cluster *cluster = change->cluster;
    bool changed = false, is_new;
    char seen[CN_WANTED_TOKEN_MAX];
    struct cn_buf text;
    int rc = cn_cluster_read(cluster, "", NULL, (struct cn_str){"", 0}, &change->wanted, &is_new,
                             seen, &change->err);

    change->what.generation = cn_wanted_generation(seen) + 1;
    if (!rc)
        rc = cn_wanted_apply(&change->wanted, &change->what, &changed, change->id, &change->err);
    *over = rc || !changed;
    snprintf(change->token, sizeof change->token, "%s", seen);
    if (*over)
        return rc;
    cn_buf_init(&text, 0);
    cn_wanted_print(&change->wanted, &text);
    if (text.failed || text.len > CN_WANTED_TEXT_MAX)
        rc = cn_fail(&change->err, CN_E_UNAVAILABLE,
                     "the set of models would have more than %u bytes", CN_WANTED_TEXT_MAX);
    else
        rc = cn_shared_wanted_write(cluster->on_thread.link, seen, change->what.generation,
                                    cn_buf_str(&text), over, change->token, &change->err);
    if (!rc && *over)
        cn_cluster_keep(cluster, cn_buf_str(&text), change->token);
    cn_buf_fini(&text);
    return rc;
}

static void
work_change(struct cn_file_task *task)
{
    struct change *change = cn_container_of(task, struct change, task);
    bool over = false;

    for (int i = 0; i < ATTEMPTS_MAX && !over && !change->rc; i++) {
        cn_wanted_fini(&change->wanted);
        change->rc = attempt(change, &over);
    }
    if (!over && !change->rc)
        change->rc = cn_fail(&change->err, CN_E_CONTENDED,
                             "other nodes changed the set of models %d times meanwhile; try again",
                             ATTEMPTS_MAX);
}

static void undo(struct change *change);

static void
done_change(struct cn_file_task *task)
{
    struct change *change = cn_container_of(task, struct change, task);
    struct cn_cluster *cluster = change->cluster;

    if (change->rc) {
        if (change->what.kind == CN_WANTED_REGISTER)
            undo(change);
        else
            answer(change, change->rc, 0, change->err.message);
        return;
    }
    cn_cluster_take(cluster, &change->wanted, change->token);
    change->next(change); /* may free it */
    cn_cluster_reconcile(cluster);
}

static void
run(struct change *change, void (*next)(struct change *change))
{
    change->next = next;
    change->task.work = work_change;
    change->task.done = done_change;
    cn_file_thread_run(change->cluster->thread, &change->task);
}

/* The version that the change means, if it is up on this node. */
static struct cn_version *
find_local(const struct change *change)
{
    return cn_registry_find(change->cluster->management->registry, change->what.model.name,
                            change->what.model.version, NULL);
}

/* This node has done its part of the change. */
static void
on_done_here(void *ctx, const struct cn_lifecycle_result *result)
{
    answer(ctx, result->code, result->http_status, result->text);
}

/* --- register */

static void
on_undone(void *ctx, const struct cn_lifecycle_result *result)
{
    struct change *change = ctx;

    (void)result;
    answer(change, change->rc, 0, change->err.message);
}

/* The store did not take the registration of this node. */
static void
undo(struct change *change)
{
    struct cn_version *version = find_local(change);

    if (version && !version->wanted_id[0])
        cn_lifecycle_undo(change->cluster->management, version, change->err.message, on_undone,
                          change);
    else
        answer(change, change->rc, 0, change->err.message);
}

/* The id makes the version one of the set. From now on reconcile.c compares it with the set, and
 * closes it when the id disappears from there. */
static void
after_register(struct change *change)
{
    struct cn_version *version = find_local(change);

    if (version)
        snprintf(version->wanted_id, sizeof version->wanted_id, "%s", change->id);
    answer(change, 0, change->http_status, change->text);
}

static void
on_registered(void *ctx, const struct cn_lifecycle_result *result)
{
    struct change *change = ctx;
    struct cn_wanted_model *model = &change->what.model;
    struct cn_version *version;

    if (result->code) {
        cn_free(model->version);
        model->version = copy(result->version);
        answer(change, result->code, result->http_status, result->text);
        return;
    }
    cn_free(model->name);
    model->name = copy(result->name);
    model->version = copy(result->version);
    change->http_status = result->http_status;
    snprintf(change->text, sizeof change->text, "%s", result->text);
    version = find_local(change);
    if (!version || !version->about.digest) {
        change->rc =
            cn_fail(&change->err, CN_E_CONFLICT, "model %s version %s was unregistered meanwhile",
                    result->name, result->version);
        undo(change);
        return;
    }
    model->digest = cn_strdup(version->about.digest);
    model->min_workers = version->min_workers;
    model->max_workers = version->max_workers;
    run(change, after_register);
}

void
cn_cluster_register(struct cn_management *management, const struct cn_register_call *call,
                    cn_lifecycle_done_fn done, void *ctx)
{
    const struct cn_model_request *request = &call->request;
    struct cn_wanted_model *model;
    struct change *change;
    char id[CN_WANTED_ID_MAX];

    if (!management->cluster) {
        cn_lifecycle_register(management, call, done, ctx);
        return;
    }
    change = change_new(management->cluster, CN_WANTED_REGISTER, NULL, NULL, done, ctx);
    if (!change)
        return;
    snprintf(id, sizeof id, "%016llx", (unsigned long long)cn_random_u64());
    model = &change->what.model;
    model->id = cn_strdup(id);
    model->url = copy(request->url);
    model->handler = request->handler && *request->handler ? cn_strdup(request->handler) : NULL;
    model->runtime = request->runtime && *request->runtime ? cn_strdup(request->runtime) : NULL;
    model->batch_size = request->batch_size;
    model->max_batch_delay_ms = request->max_batch_delay_ms;
    model->response_timeout_s = request->response_timeout_s;
    model->startup_timeout_s = request->startup_timeout_s;
    cn_lifecycle_register(management, call, on_registered, change);
}

/* --- the others */

static void
after_scale(struct change *change)
{
    if (find_local(change))
        cn_lifecycle_scale(change->cluster->management, &change->scale, on_done_here, change);
    else
        answer(change, 0, 202, "Processing worker updates...");
}

void
cn_cluster_scale(struct cn_management *management, const struct cn_scale_call *call,
                 cn_lifecycle_done_fn done, void *ctx)
{
    struct change *change;

    if (!management->cluster) {
        cn_lifecycle_scale(management, call, done, ctx);
        return;
    }
    change = change_new(management->cluster, CN_WANTED_SCALE, call->name, call->version, done, ctx);
    if (!change)
        return;
    change->what.model.min_workers = call->min;
    change->what.model.max_workers = call->max;
    change->scale = *call;
    change->scale.name = change->what.model.name;
    change->scale.version = change->what.model.version;
    run(change, after_scale);
}

static void
after_default(struct change *change)
{
    char text[600];

    if (find_local(change)) {
        cn_lifecycle_set_default(change->cluster->management, &change->to, on_done_here, change);
        return;
    }
    snprintf(text, sizeof text, "Default version successfully updated for model \"%s\" to \"%s\"",
             change->what.model.name, change->what.model.version);
    answer(change, 0, 200, text);
}

/* The deadline of a swap is a time and not a duration in the set, so that nodes which look at the
 * set later close the old version at the same moment. A duration that the caller leaves out comes
 * from the model's own settings. */
void
cn_cluster_set_default(struct cn_management *management, const struct cn_default_call *call,
                       cn_lifecycle_done_fn done, void *ctx)
{
    const struct cn_version *version;
    struct change *change;
    int64_t deadline_ms = call->swap_deadline_ms;

    if (!management->cluster) {
        cn_lifecycle_set_default(management, call, done, ctx);
        return;
    }
    change = change_new(management->cluster, CN_WANTED_SET_DEFAULT, call->name, call->version, done,
                        ctx);
    if (!change)
        return;
    version = find_local(change);
    if (deadline_ms < 0)
        deadline_ms = version ? (int64_t)version->about.config.swap_deadline_ms : 0;
    if (deadline_ms > 0)
        change->what.retire_wall_ms = (int64_t)cn_wall_ms() + deadline_ms;
    if (call->swap_policy >= 0)
        change->what.model.swap_policy =
            cn_strdup(cn_swap_policy_word((enum cn_swap_policy)call->swap_policy));
    change->to = *call;
    change->to.name = change->what.model.name;
    change->to.version = change->what.model.version;
    change->to.swap_deadline_ms = deadline_ms;
    run(change, after_default);
}

static void
after_unregister(struct change *change)
{
    struct cn_version *version = find_local(change);
    char text[400];

    /* Only the version that the set had: another one may have come in its place. */
    if (version && version->wanted_id[0] && strcmp(version->wanted_id, change->id) == 0) {
        cn_lifecycle_remove(change->cluster->management, version, true, on_done_here, change);
        return;
    }
    snprintf(text, sizeof text, "Model \"%s\" unregistered", change->what.model.name);
    answer(change, 0, 200, text);
}

void
cn_cluster_unregister(struct cn_management *management, const char *name, const char *version,
                      cn_lifecycle_done_fn done, void *ctx)
{
    struct change *change;

    if (!management->cluster) {
        cn_lifecycle_unregister(management, name, version, done, ctx);
        return;
    }
    change = change_new(management->cluster, CN_WANTED_UNREGISTER, name, version, done, ctx);
    if (change)
        run(change, after_unregister);
}

static void
on_retired(void *ctx, const struct cn_lifecycle_result *result)
{
    (void)ctx, (void)result;
}

static void
after_retired(struct change *change)
{
    answer(change, 0, 200, "");
}

void
cn_cluster_retired(struct cn_cluster *cluster, const struct cn_version *version)
{
    struct change *change;

    if (cluster->n_changes >= CHANGES_MAX || cluster->stopped)
        return; /* the caller's timer tries again */
    change = change_new(cluster, CN_WANTED_RETIRED, version->about.name, version->about.version,
                        on_retired, NULL);
    if (!change)
        return;
    change->what.model.id = cn_strdup(version->wanted_id);
    run(change, after_retired);
}
