/* management/cluster/reconcile.c - makes this node's models like the wanted ones. Loop 0.
 *
 * cn_cluster_reconcile() compares the two and begins what is missing. It is called after each look
 * at the store and at the end of each action, so nothing has to be remembered but what is under way
 * (actions) and what did not succeed (troubles, with the time of the next attempt). A version of
 * this node is matched by the id of its registration, so that a version that was unregistered and
 * registered anew meanwhile is loaded anew. A version without an id was registered on this node and
 * is not in the set yet; it is left alone until that is decided.
 *
 * A version in the set and one of this node can stand to each other in these ways:
 *   wanted, not here          register it, unless it has failed a short while ago
 *   wanted, here, same id     adjust its workers, the default version and the swap policy
 *   wanted, here, another id  it was registered anew: close ours, and load it at the next call
 *   not wanted, here, an id   close it
 *   here, without an id       leave it alone (see above)
 * A version that fails is tried again after 0.5 s, then 1 s, 2 s and so on, up to 30 s. All others
 * go first: if an attempt takes longer than these pauses, as with a web server that never answers,
 * the versions that fail would take all places. */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "management/api/json/json_text.h"
#include "management/cluster/cluster_priv.h"
#include "management/models/lifecycle_priv.h"

#define ACTIONS_MAX 4 /* as many as there are downloads at once */
#define RETRY_FIRST_MS 500
#define RETRY_MAX_MS 30000
#define ERRORS_SHOWN 16
#define ERROR_BYTES 400

struct action {
    struct cn_list link;
    struct cn_cluster *cluster;
    char id[CN_WANTED_ID_MAX];
    char *name, *version;
};

struct trouble {
    struct cn_list link;
    char id[CN_WANTED_ID_MAX];
    char *name, *version;
    char error[ERROR_BYTES];
    uint64_t delay_ms, retry_ms; /* retry_ms: by the loop's clock */
};

uint32_t
cn_cluster_workers(int64_t wanted)
{
    return wanted < 0 ? 0 : (uint32_t)wanted;
}

/* --- troubles */

static struct trouble *
find_trouble(const struct cn_cluster *cluster, const char *name, const char *version)
{
    struct cn_list *node;

    cn_list_for_each(node, (struct cn_list *)&cluster->troubles) {
        struct trouble *trouble = cn_container_of(node, struct trouble, link);

        if (strcmp(trouble->name, name) == 0 && strcmp(trouble->version, version) == 0)
            return trouble;
    }
    return NULL;
}

static void
forget_trouble(struct cn_cluster *cluster, struct trouble *trouble)
{
    if (!trouble)
        return;
    cluster->reported_ms = 0;
    cn_list_remove(&trouble->link);
    cn_free(trouble->name);
    cn_free(trouble->version);
    cn_free(trouble);
}

void
cn_cluster_forget_troubles(struct cn_cluster *cluster)
{
    while (!cn_list_empty(&cluster->troubles))
        forget_trouble(cluster, cn_container_of(cluster->troubles.next, struct trouble, link));
}

static void
note_trouble(struct cn_cluster *cluster, const struct action *action, const char *text)
{
    struct trouble *trouble = find_trouble(cluster, action->name, action->version);
    const int shown = (int)cn_utf8_cut(cn_str_from(text), ERROR_BYTES - 1);
    char reason[CN_ERROR_MESSAGE_MAX], error[ERROR_BYTES];

    snprintf(error, sizeof error, "%.*s", shown, text);
    if (!trouble) {
        trouble = cn_alloc(sizeof *trouble);
        trouble->name = cn_strdup(action->name);
        trouble->version = cn_strdup(action->version);
        cn_list_push_back(&cluster->troubles, &trouble->link);
        cluster->reported_ms = 0;
    }
    if (strcmp(trouble->id, action->id) != 0)
        trouble->delay_ms = 0;
    if (strcmp(trouble->error, error) != 0 || !trouble->delay_ms)
        cn_log(CN_LOG_ERROR,
               "event=cluster_model_failed model=%s version=%s reason=%s note=\"it is tried "
               "again\"",
               action->name, action->version,
               cn_log_quote(text, strlen(text), reason, sizeof reason));
    snprintf(trouble->id, sizeof trouble->id, "%s", action->id);
    snprintf(trouble->error, sizeof trouble->error, "%s", error);
    trouble->delay_ms = trouble->delay_ms ? trouble->delay_ms * 2 : RETRY_FIRST_MS;
    if (trouble->delay_ms > RETRY_MAX_MS)
        trouble->delay_ms = RETRY_MAX_MS;
    trouble->retry_ms = cn_loop_now_ms(cluster->management->home) + trouble->delay_ms;
}

/* --- actions */

static bool
is_under_way(const struct cn_cluster *cluster, const char *name, const char *version)
{
    struct cn_list *node;

    cn_list_for_each(node, (struct cn_list *)&cluster->actions) {
        const struct action *action = cn_container_of(node, struct action, link);

        if (strcmp(action->name, name) == 0 && strcmp(action->version, version) == 0)
            return true;
    }
    return false;
}

static struct action *
begin_action(struct cn_cluster *cluster, const char *name, const char *version, const char *id)
{
    struct action *action = cn_alloc(sizeof *action);

    action->cluster = cluster;
    action->name = cn_strdup(name);
    action->version = cn_strdup(version);
    snprintf(action->id, sizeof action->id, "%s", id);
    cn_list_push_back(&cluster->actions, &action->link);
    cluster->n_actions++;
    return action;
}

static void
end_action(struct action *action)
{
    struct cn_cluster *cluster = action->cluster;

    cn_list_remove(&action->link);
    cluster->n_actions--;
    cn_free(action->name);
    cn_free(action->version);
    cn_free(action);
    cn_cluster_reconcile(cluster);
}

static void
on_registered(void *ctx, const struct cn_lifecycle_result *result)
{
    struct action *action = ctx;
    struct cn_cluster *cluster = action->cluster;
    struct cn_version *version =
        cn_registry_find(cluster->management->registry, action->name, action->version, NULL);

    /* A version whose workers do not start stays, as at the start of a server: they are started
     * again. */
    if (version && (!result->code || result->code == CN_E_LOAD_FAILED))
        snprintf(version->wanted_id, sizeof version->wanted_id, "%s", action->id);
    if (result->code && result->code != CN_E_DRAINING)
        note_trouble(cluster, action, result->text);
    else if (!result->code && !version)
        note_trouble(cluster, action,
                     "the archive has another name or version than the set of models says");
    else
        forget_trouble(cluster, find_trouble(cluster, action->name, action->version));
    end_action(action);
}

static void
begin_register(struct cn_cluster *cluster, const struct cn_wanted_model *model)
{
    struct action *action = begin_action(cluster, model->name, model->version, model->id);
    const struct cn_register_call call = {
        .request = {.url = model->url,
                    .model_name = model->name,
                    .handler = model->handler,
                    .runtime = model->runtime,
                    .batch_size = model->batch_size,
                    .max_batch_delay_ms = model->max_batch_delay_ms,
                    .initial_workers = model->min_workers,
                    .max_workers = model->max_workers,
                    .response_timeout_s = model->response_timeout_s,
                    .startup_timeout_s = model->startup_timeout_s},
        .digest = model->digest,
        .synchronous = true,
        .keep = true,
    };

    cn_log(CN_LOG_INFO, "event=cluster_model_wanted model=%s version=%s generation=%llu",
           model->name, model->version, (unsigned long long)cn_wanted_generation(cluster->token));
    cn_lifecycle_register(cluster->management, &call, on_registered, action);
}

static void
on_dropped(void *ctx, const struct cn_lifecycle_result *result)
{
    (void)result;
    end_action(ctx);
}

static void
drop(struct cn_cluster *cluster, struct cn_version *version)
{
    struct action *action = begin_action(cluster, version->about.name, version->about.version, "");

    forget_trouble(cluster, find_trouble(cluster, action->name, action->version));
    /* If the version was registered anew meanwhile, its sequences may already be new ones. */
    cn_lifecycle_remove(cluster->management, version,
                        !cn_wanted_find(&cluster->wanted, action->name, action->version),
                        on_dropped, action);
}

/* --- comparing */

static void
on_changed(void *ctx, const struct cn_lifecycle_result *result)
{
    (void)ctx, (void)result;
}

static void
set_default(struct cn_cluster *cluster, const struct cn_wanted_model *model,
            const struct cn_version *version)
{
    const struct cn_version *before = version->model->default_version;
    const struct cn_wanted_model *old =
        cn_wanted_find(&cluster->wanted, before->about.name, before->about.version);
    const int64_t now_ms = (int64_t)cn_wall_ms();
    struct cn_default_call call = {
        .name = model->name,
        .version = model->version,
        .swap_policy =
            model->swap_policy ? cn_swap_policy_parse(cn_str_from(model->swap_policy)) : -1};

    if (old && old != model && old->retire_wall_ms)
        call.swap_deadline_ms = old->retire_wall_ms > now_ms ? old->retire_wall_ms - now_ms : 1;
    cn_lifecycle_set_default(cluster->management, &call, on_changed, NULL);
}

/* Makes a version that is up like the wanted one. */
static void
adjust(struct cn_cluster *cluster, const struct cn_wanted_model *model, struct cn_version *version)
{
    const uint32_t min = cn_cluster_workers(model->min_workers);
    const uint32_t max = cn_cluster_workers(model->max_workers);
    const int64_t now_ms = (int64_t)cn_wall_ms();
    const int policy =
        model->swap_policy ? cn_swap_policy_parse(cn_str_from(model->swap_policy)) : -1;

    if (version->min_workers != min || version->max_workers != max)
        cn_lifecycle_scale(
            cluster->management,
            &(struct cn_scale_call){
                .name = model->name, .version = model->version, .min = min, .max = max},
            on_changed, NULL);
    if (model->is_default && (version->model->default_version != version ||
                              (policy >= 0 && (int)version->swap_policy != policy)))
        set_default(cluster, model, version);
    if (!model->is_default && model->retire_wall_ms && !version->retire_wall_ms &&
        version->model->default_version != version)
        cn_lifecycle_retire(version, model->retire_wall_ms > now_ms
                                         ? (uint64_t)(model->retire_wall_ms - now_ms)
                                         : 1);
    if (cn_worker_pool_is_ready(&version->health))
        forget_trouble(cluster, find_trouble(cluster, model->name, model->version));
}

/* A new default version is loaded before the others of its model, so that no step finds another
 * default in between. */
static bool
waits_for_default(const struct cn_cluster *cluster, const struct cn_wanted_model *model)
{
    const struct cn_wanted_model *chosen = cn_wanted_find(&cluster->wanted, model->name, NULL);

    return chosen && chosen != model &&
           !cn_registry_find(cluster->management->registry, chosen->name, chosen->version, NULL) &&
           !find_trouble(cluster, chosen->name, chosen->version);
}

/* What keeps the node from having a wanted version. */
enum want { WANT_NOTHING, WANT_TROUBLE, WANT_TIME };

/* With `retries` false, a version that has failed is not tried again. */
static enum want
want(struct cn_cluster *cluster, const struct cn_wanted_model *model, bool retries)
{
    const struct trouble *trouble = find_trouble(cluster, model->name, model->version);
    const bool has_failed = trouble && strcmp(trouble->id, model->id) == 0;
    struct cn_error err = {0};
    struct cn_version *version;

    if (is_under_way(cluster, model->name, model->version))
        return has_failed ? WANT_TROUBLE : WANT_TIME;
    version = cn_registry_find(cluster->management->registry, model->name, model->version, &err);
    if (!version && err.code == CN_E_MODEL_LOADING)
        return WANT_TIME; /* a registration of this version runs on this node */
    if (version && !version->wanted_id[0])
        return WANT_TIME; /* this node has registered it, and the store has not accepted that yet */
    if (version && strcmp(version->wanted_id, model->id) != 0) {
        drop(cluster, version);
        return WANT_TIME;
    }
    if (version) {
        adjust(cluster, model, version);
        return find_trouble(cluster, model->name, model->version) ? WANT_TROUBLE : WANT_NOTHING;
    }
    if (has_failed && (!retries || cn_loop_now_ms(cluster->management->home) < trouble->retry_ms))
        return WANT_TROUBLE;
    if (cluster->n_actions < ACTIONS_MAX && !waits_for_default(cluster, model))
        begin_register(cluster, model);
    return has_failed ? WANT_TROUBLE : WANT_TIME;
}

static const struct cn_wanted_model *
find_id(const struct cn_wanted *wanted, const char *id)
{
    for (uint32_t i = 0; i < wanted->n; i++)
        if (strcmp(wanted->models[i].id, id) == 0)
            return &wanted->models[i];
    return NULL;
}

/* A version of this node that is not wanted any more; NULL: there is none. */
static struct cn_version *
find_unwanted(const struct cn_cluster *cluster)
{
    struct cn_list *model_node, *node;

    cn_list_for_each(model_node, cn_registry_models(cluster->management->registry)) {
        struct cn_model *model = cn_container_of(model_node, struct cn_model, link);

        cn_list_for_each(node, &model->versions) {
            struct cn_version *version = cn_container_of(node, struct cn_version, link);

            if (version->phase == CN_VERSION_UP && version->wanted_id[0] &&
                !find_id(&cluster->wanted, version->wanted_id) &&
                !is_under_way(cluster, version->about.name, version->about.version))
                return version;
        }
    }
    return NULL;
}

static void
forget_old_troubles(struct cn_cluster *cluster)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &cluster->troubles) {
        struct trouble *trouble = cn_container_of(node, struct trouble, link);

        if (!cn_wanted_find(&cluster->wanted, trouble->name, trouble->version))
            forget_trouble(cluster, trouble);
    }
}

/* Is a version that is not wanted being closed? */
static bool
is_closing(const struct cn_cluster *cluster)
{
    struct cn_list *node;

    cn_list_for_each(node, (struct cn_list *)&cluster->actions)
        if (!cn_container_of(node, struct action, link)->id[0])
            return true;
    return false;
}

/* `waits` holds the start of the server: it is over when each version was tried, though some may be
 * in trouble and are tried again. `converged` is stricter, and goes into the report: everything is
 * as wanted. */
void
cn_cluster_reconcile(struct cn_cluster *cluster)
{
    struct cn_management *management = cluster->management;
    bool waits = false, converged = cluster->token[0] != '\0';
    struct cn_version *version;

    if (cluster->stopped || !cluster->token[0] || atomic_load(&management->draining))
        return;
    forget_old_troubles(cluster);
    while ((version = find_unwanted(cluster)) != NULL)
        drop(cluster, version);
    for (uint32_t i = 0; i < cluster->wanted.n; i++) {
        const enum want left = want(cluster, &cluster->wanted.models[i], false);

        waits |= left == WANT_TIME;
        converged &= left == WANT_NOTHING;
    }
    for (uint32_t i = 0; i < cluster->wanted.n; i++) {
        const struct cn_wanted_model *model = &cluster->wanted.models[i];

        if (find_trouble(cluster, model->name, model->version))
            want(cluster, model, true);
    }
    converged &= cluster->n_actions == 0;
    if (converged != cluster->converged)
        cluster->reported_ms = 0;
    cluster->converged = converged;
    if (cluster->starting && !waits && !is_closing(cluster)) {
        cluster->starting = false;
        cn_management_start_release(management);
    }
}

/* --- the report */

void
cn_cluster_report(const struct cn_cluster *cluster, struct cn_buf *out)
{
    json_t *root = json_object(), *errors = json_array();
    struct cn_list *node;
    char *text;

    cn_list_for_each(node, (struct cn_list *)&cluster->troubles) {
        const struct trouble *trouble = cn_container_of(node, struct trouble, link);

        if (json_array_size(errors) < ERRORS_SHOWN)
            json_array_append_new(errors, json_pack("{ss ss so}", "model", trouble->name, "version",
                                                    trouble->version, "error",
                                                    cn_json_text(trouble->error)));
    }
    json_object_set_new(root, "seen",
                        json_integer((json_int_t)cn_wanted_generation(cluster->token)));
    json_object_set_new(root, "converged", json_boolean(cluster->converged));
    json_object_set_new(root, "errors", errors);
    text = json_dumps(root, JSON_COMPACT);
    if (text)
        cn_buf_puts(out, text);
    free(text);
    json_decref(root);
}
