/* management/cluster/cluster.c - begins, ends and looks at the wanted set of models. Loop 0, and
 * the cluster's thread, which alone talks to the store.
 *
 * A look is one round trip: it writes this node's report, if that is due, and reads the set if
 * another node has changed it. The thread keeps the text of the set. If the store comes back
 * without a change that this text has, because it lost its data or the last writes before a
 * failover, the thread writes a set that has the changes of both (cn_wanted_merge()). The
 * conditional write makes sure that one node does that.
 *
 * The token is the version of the set in the store, and it has the set's generation in it
 * (cn_wanted_generation). A look sends the token that is known; if it is still the right one, the
 * answer has no text, so a look at an unchanged set costs almost nothing. Loop 0 has its own copy
 * of token and set; what is in `on_thread` belongs to the thread. */
#include "management/cluster/cluster_priv.h"

#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/time/clock.h"
#include "management/api/json/json_text.h"
#include "management/nodes/nodes.h"
#include "management/repository/repository.h"

#define REPORT_EVERY_MS 2000 /* an unchanged report is sent again after this time */
#define REPORT_OLD_MS 10000  /* the node of an older report is gone */

/* --- on the thread */

void
cn_cluster_keep(struct cn_cluster *cluster, struct cn_str text, const char *token)
{
    cn_buf_reset(&cluster->on_thread.text);
    cn_buf_append_str(&cluster->on_thread.text, text);
    snprintf(cluster->on_thread.token, sizeof cluster->on_thread.token, "%s", token);
}

static void
log_lost(void *ctx, const struct cn_wanted_change *change, const struct cn_error *err)
{
    char reason[CN_ERROR_MESSAGE_MAX];

    (void)ctx;
    cn_log(
        CN_LOG_ERROR,
        "event=cluster_change_lost kind=%s model=%s version=%s reason=%s note=\"the shared store "
        "had lost this change, and it contradicts one that was made since\"",
        cn_wanted_kind_word(change->kind), change->model.name, change->model.version,
        cn_log_quote(err->message, strlen(err->message), reason, sizeof reason));
}

/* Writes the set that has the changes of the store's set and of this node's. */
static int
restore(struct cn_cluster *cluster, const struct cn_wanted *merged, uint64_t generation,
        struct cn_wanted_look *look, struct cn_error *err)
{
    char token[CN_WANTED_TOKEN_MAX];
    struct cn_buf text;
    bool written = false;
    int rc;

    cn_buf_init(&text, 0);
    cn_wanted_print(merged, &text);
    if (text.failed || text.len > CN_WANTED_TEXT_MAX)
        rc = cn_fail(err, CN_E_UNAVAILABLE, "the set of models would have more than %u bytes",
                     CN_WANTED_TEXT_MAX);
    else
        rc = cn_shared_wanted_write(cluster->on_thread.link, look->token, generation,
                                    cn_buf_str(&text), &written, token, err);
    if (!rc && !written)
        rc = cn_fail(err, CN_E_STORE_UNREACHABLE,
                     "another node has just written the set of models; try again");
    if (!rc) {
        cn_log(CN_LOG_WARN,
               "event=cluster_models_restored generation=%llu note=\"the shared store had lost "
               "changes of the set of models, and has them again\"",
               (unsigned long long)cn_wanted_generation(token));
        snprintf(look->token, sizeof look->token, "%s", token);
        cn_cluster_keep(cluster, cn_buf_str(&text), token);
    }
    cn_buf_fini(&text);
    return rc;
}

/* Takes the set that the store has. If it lacks changes, it is mended first.
 *
 * The store may have fewer changes than this node has seen, for example after a failover to a
 * replica that lagged. The generation of the merged set is one above the higher of the two, so it
 * looks new to every node. */
static int
take_stored(struct cn_cluster *cluster, struct cn_wanted_look *look, struct cn_wanted *wanted,
            struct cn_error *err)
{
    const uint64_t mine_at = cn_wanted_generation(cluster->on_thread.token);
    const uint64_t stored_at = cn_wanted_generation(look->token);
    const uint64_t next = (stored_at > mine_at ? stored_at : mine_at) + 1;
    struct cn_wanted mine;
    int rc = cn_wanted_parse(cn_buf_str(&look->text), wanted, err);

    if (rc)
        return rc;
    if ((rc = cn_wanted_parse(cn_buf_str(&cluster->on_thread.text), &mine, err)) != 0)
        return rc;
    if (cn_wanted_merge(wanted, &mine, stored_at < mine_at, next, log_lost, NULL))
        rc = restore(cluster, wanted, next, look, err);
    else
        cn_cluster_keep(cluster, cn_buf_str(&look->text), look->token);
    cn_wanted_fini(&mine);
    return rc;
}

int
cn_cluster_read(struct cn_cluster *cluster, const char *known, const char *node,
                struct cn_str report, struct cn_wanted *wanted, bool *is_new,
                char token[CN_WANTED_TOKEN_MAX], struct cn_error *err)
{
    struct cn_wanted_look look = {.known = known, .node = node, .report = report};
    int rc;

    *wanted = (struct cn_wanted){0};
    cn_buf_init(&look.text, 2 * CN_WANTED_TEXT_MAX);
    rc = cn_shared_wanted_look(cluster->on_thread.link, &look, err);
    if (!rc && look.is_new)
        rc = take_stored(cluster, &look, wanted, err);
    if (rc)
        cn_wanted_fini(wanted);
    *is_new = !rc && look.is_new;
    snprintf(token, CN_WANTED_TOKEN_MAX, "%s", look.token);
    cn_buf_fini(&look.text);
    return rc;
}

/* --- looks */

struct look {
    struct cn_cluster *cluster;
    struct cn_file_task task;
    struct cn_buf report;
    bool reports, is_new;
    int rc;
    struct cn_error err;
    struct cn_wanted wanted;
    char known[CN_WANTED_TOKEN_MAX], token[CN_WANTED_TOKEN_MAX];
};

static void set_timer(struct cn_cluster *cluster);

static void
work_look(struct cn_file_task *task)
{
    struct look *look = cn_container_of(task, struct look, task);

    look->rc = cn_cluster_read(
        look->cluster, look->known, look->reports ? look->cluster->node : NULL,
        cn_buf_str(&look->report), &look->wanted, &look->is_new, look->token, &look->err);
}

/* Logs that the store is away, or that it is back. */
static void
note_store(struct cn_cluster *cluster, const struct look *look)
{
    char reason[CN_ERROR_MESSAGE_MAX];

    if (look->rc && cluster->store_err.code != look->rc)
        cn_log(CN_LOG_WARN,
               "event=cluster_store_away reason=%s note=\"models stay as they are, and cannot be "
               "changed meanwhile\"",
               cn_log_quote(look->err.message, strlen(look->err.message), reason, sizeof reason));
    if (!look->rc && cluster->store_err.code)
        cn_log(CN_LOG_INFO, "event=cluster_store_back");
    cluster->store_err = look->rc ? look->err : (struct cn_error){0};
}

/* The set was read for the first time.
 *
 * Only the first node of a new cluster registers the models of its command line. On the others the
 * set counts, or each start of a node would bring back models that were unregistered since. */
static void
begin_serving(struct cn_cluster *cluster)
{
    struct cn_management *management = cluster->management;

    if (cn_wanted_generation(cluster->token) == 0)
        cluster->seed(management);
    else if (management->config->n_models || management->config->n_restored)
        cn_log(CN_LOG_INFO,
               "event=cluster_models_first note=\"the models of the command line are not "
               "registered, because the nodes already have a set of models\"");
}

static void
done_look(struct cn_file_task *task)
{
    struct look *look = cn_container_of(task, struct look, task);
    struct cn_cluster *cluster = look->cluster;
    struct cn_management *management = cluster->management;
    const bool is_first = !look->rc && !cluster->token[0];

    note_store(cluster, look);
    if (look->rc && look->reports)
        cluster->reported_ms = 0;
    if (!cluster->stopped && look->is_new)
        cn_cluster_take(cluster, &look->wanted, look->token);
    else if (!cluster->stopped && !look->rc)
        snprintf(cluster->token, sizeof cluster->token, "%s", look->token);
    if (!cluster->stopped && is_first)
        begin_serving(cluster);
    cn_cluster_reconcile(cluster);
    set_timer(cluster);
    cn_wanted_fini(&look->wanted);
    cn_buf_fini(&look->report);
    cn_free(look);
    cn_management_op_end(management);
}

static void
look_now(struct cn_timer *timer)
{
    struct cn_cluster *cluster = cn_container_of(timer, struct cn_cluster, timer);
    const uint64_t now_ms = cn_loop_now_ms(cluster->management->home);
    struct look *look = cn_alloc(sizeof *look);

    cn_management_op_begin(cluster->management);
    look->cluster = cluster;
    snprintf(look->known, sizeof look->known, "%s", cluster->token);
    cn_buf_init(&look->report, 0);
    look->reports = !cluster->reported_ms || now_ms >= cluster->reported_ms + REPORT_EVERY_MS;
    if (look->reports) {
        cn_cluster_report(cluster, &look->report);
        cluster->reported_ms = now_ms ? now_ms : 1;
    }
    look->task.work = work_look;
    look->task.done = done_look;
    cn_file_thread_run(cluster->thread, &look->task);
}

static void
set_timer(struct cn_cluster *cluster)
{
    struct cn_management *management = cluster->management;

    if (!cluster->stopped)
        cn_timer_set(cn_loop_wheel(management->home), &cluster->timer,
                     cn_loop_now_ms(management->home) + management->config->cluster_poll_ms);
}

void
cn_cluster_take(struct cn_cluster *cluster, struct cn_wanted *wanted, const char *token)
{
    cn_wanted_fini(&cluster->wanted);
    cluster->wanted = *wanted;
    *wanted = (struct cn_wanted){0};
    snprintf(cluster->token, sizeof cluster->token, "%s", token);
    cluster->reported_ms = 0;
}

/* --- describing */

struct describing {
    struct cn_cluster *cluster;
    struct cn_file_task task;
    struct cn_error err;
    int rc;
    uint64_t generation; /* of the set in the store */
    json_t *nodes;
    cn_cluster_done_fn done;
    void *ctx;
};

/* A node's key is "name#random", so two nodes with one name do not overwrite each other's reports,
 * and neither does a node that was restarted. People see only the name. */
static void
take_report(void *ctx, struct cn_str node, uint64_t age_ms, struct cn_str report)
{
    json_t *nodes = ctx, *out = json_loadb(report.ptr, report.len, 0, NULL);
    const char *end = memrchr(node.ptr, '#', node.len);

    if (!json_is_object(out)) {
        json_decref(out); /* not ours */
        return;
    }
    json_object_set_new(out, "node",
                        json_stringn(node.ptr, end ? (size_t)(end - node.ptr) : node.len));
    json_object_set_new(out, "ageMSec", json_integer((json_int_t)age_ms));
    json_array_append_new(nodes, out);
}

static void
work_describe(struct cn_file_task *task)
{
    struct describing *describing = cn_container_of(task, struct describing, task);
    struct cn_wanted_look look = {.known = describing->cluster->on_thread.token};

    cn_buf_init(&look.text, 2 * CN_WANTED_TEXT_MAX);
    describing->rc =
        cn_shared_wanted_look(describing->cluster->on_thread.link, &look, &describing->err);
    cn_buf_fini(&look.text);
    describing->generation = cn_wanted_generation(look.token);
    if (!describing->rc)
        describing->rc =
            cn_shared_wanted_reports(describing->cluster->on_thread.link, REPORT_OLD_MS,
                                     take_report, describing->nodes, &describing->err);
}

static json_t *
show_models(const struct cn_wanted *wanted)
{
    struct cn_buf text;
    json_t *root, *models;

    cn_buf_init(&text, 0);
    cn_wanted_print(wanted, &text);
    root = json_loadb(text.data, text.len, 0, NULL);
    models = json_incref(json_object_get(root, "models"));
    json_decref(root);
    cn_buf_fini(&text);
    return models ? models : json_array();
}

static void
done_describe(struct cn_file_task *task)
{
    struct describing *describing = cn_container_of(task, struct describing, task);
    struct cn_cluster *cluster = describing->cluster;
    const struct cn_error *err = describing->rc ? &describing->err : &cluster->store_err;
    struct cn_management *management = cluster->management;
    json_t *out = json_object();
    const size_t len = strcspn(cluster->node, "#");

    json_object_set_new(out, "node", json_stringn(cluster->node, len));
    json_object_set_new(
        out, "generation",
        json_integer((json_int_t)(describing->rc ? cn_wanted_generation(cluster->token)
                                                 : describing->generation)));
    json_object_set_new(out, "converged", json_boolean(cluster->converged));
    json_object_set_new(out, "storeError", err->code ? cn_json_text(err->message) : json_null());
    json_object_set_new(out, "models", show_models(&cluster->wanted));
    json_object_set_new(out, "nodes", describing->nodes);
    describing->done(describing->ctx, out);
    cn_free(describing);
    cn_management_op_end(management);
}

void
cn_cluster_describe(struct cn_cluster *cluster, cn_cluster_done_fn done, void *ctx)
{
    struct describing *describing = cn_alloc(sizeof *describing);

    cn_management_op_begin(cluster->management);
    describing->cluster = cluster;
    describing->nodes = json_array();
    describing->done = done;
    describing->ctx = ctx;
    describing->task.work = work_describe;
    describing->task.done = done_describe;
    cn_file_thread_run(cluster->thread, &describing->task);
}

static bool
is_text(const json_t *object, const char *key, const char *text)
{
    const char *found = json_string_value(json_object_get(object, key));

    return found && strcmp(found, text) == 0;
}

/* What is wrong with the version on a node; null: nothing. */
static json_t *
error_of(const json_t *node, const char *name, const char *version)
{
    const json_t *errors = json_object_get(node, "errors"), *error;
    size_t i;

    json_array_foreach(
        errors, i, error) if (is_text(error, "model", name) &&
                              is_text(error, "version",
                                      version)) return json_incref(json_object_get(error, "error"));
    return json_null();
}

json_t *
cn_cluster_of_version(const json_t *all, const char *name, const char *version)
{
    const json_t *models = json_object_get(all, "models"), *model, *node;
    json_t *out = NULL, *nodes;
    size_t i;

    json_array_foreach(models, i, model) if (!out && is_text(model, "name", name) &&
                                             is_text(model, "version", version)) out =
        json_pack("{sO sO sO}", "generation", json_object_get(all, "generation"), "storeError",
                  json_object_get(all, "storeError"), "digest", json_object_get(model, "digest"));
    if (!out)
        return NULL;
    nodes = json_array();
    json_array_foreach(json_object_get(all, "nodes"), i, node)
    {
        json_t *one = json_object();

        json_object_set(one, "node", json_object_get(node, "node"));
        json_object_set(one, "wantedGeneration", json_object_get(all, "generation"));
        json_object_set(one, "seenGeneration", json_object_get(node, "seen"));
        json_object_set(one, "converged", json_object_get(node, "converged"));
        json_object_set_new(one, "error", error_of(node, name, version));
        json_array_append_new(nodes, one);
    }
    json_object_set_new(out, "nodes", nodes);
    return out;
}

/* --- begin and end */

static int
check_options(const struct cn_server_config *config, struct cn_error *err)
{
    if (!config->state_store || strcmp(config->state_store, CN_STATE_STORE_EMBEDDED) == 0)
        return cn_fail(err, CN_E_CONFIG,
                       "cluster-models needs a store that the nodes share: set state-store to a "
                       "valkey:// URL");
    if (config->model_control_mode != CN_CONTROL_NONE)
        return cn_fail(err, CN_E_CONFIG,
                       "cluster-models needs model-control-mode none: models are registered with "
                       "the management API, on any node");
    return 0;
}

int
cn_cluster_create(struct cn_management *management, struct cn_cluster **out, struct cn_error *err)
{
    const struct cn_server_config *config = management->config;
    struct cn_cluster *cluster;
    int rc;

    *out = NULL;
    if (!config->cluster_models)
        return 0;
    if ((rc = check_options(config, err)) != 0)
        return rc;
    cluster = cn_alloc(sizeof *cluster);
    cluster->management = management;
    cn_list_init(&cluster->actions);
    cn_list_init(&cluster->troubles);
    cn_buf_init(&cluster->on_thread.text, 2 * CN_WANTED_TEXT_MAX);
    snprintf(cluster->on_thread.token, sizeof cluster->on_thread.token, "%s", CN_WANTED_NONE);
    snprintf(cluster->node, sizeof cluster->node, "%s#%016llx",
             cn_nodes_own_name(management->nodes), (unsigned long long)cn_random_u64());
    cn_timer_init(&cluster->timer, look_now);
    rc = cn_shared_link_open(config->state_store, config->cluster_timeout_ms,
                             &cluster->on_thread.link, err);
    if (!rc)
        rc = cn_file_thread_create(management->home, 1, &cluster->thread, err);
    if (rc) {
        cn_cluster_destroy(cluster);
        return rc;
    }
    *out = cluster;
    return 0;
}

void
cn_cluster_destroy(struct cn_cluster *cluster)
{
    if (!cluster)
        return;
    cn_file_thread_destroy(cluster->thread);
    cn_shared_link_close(cluster->on_thread.link);
    cn_cluster_forget_troubles(cluster);
    cn_wanted_fini(&cluster->wanted);
    cn_buf_fini(&cluster->on_thread.text);
    cn_free(cluster);
}

void
cn_cluster_start(struct cn_cluster *cluster, void (*seed)(struct cn_management *management))
{
    cluster->seed = seed;
    cluster->starting = true;
    cn_management_start_hold(cluster->management);
    look_now(&cluster->timer);
}

struct leaving {
    struct cn_cluster *cluster;
    struct cn_file_task task;
};

static void
work_leave(struct cn_file_task *task)
{
    struct cn_cluster *cluster = cn_container_of(task, struct leaving, task)->cluster;
    struct cn_error err;

    /* If the store is away, the report grows old there and is forgotten. */
    cn_shared_wanted_leave(cluster->on_thread.link, cluster->node, &err);
}

static void
done_leave(struct cn_file_task *task)
{
    struct leaving *leaving = cn_container_of(task, struct leaving, task);
    struct cn_management *management = leaving->cluster->management;

    cn_free(leaving);
    cn_management_op_end(management);
}

void
cn_cluster_stop(struct cn_cluster *cluster)
{
    struct leaving *leaving;

    if (!cluster || cluster->stopped)
        return;
    cluster->stopped = true;
    cn_timer_cancel(&cluster->timer);
    leaving = cn_alloc(sizeof *leaving);
    cn_management_op_begin(cluster->management);
    leaving->cluster = cluster;
    leaving->task.work = work_leave;
    leaving->task.done = done_leave;
    cn_file_thread_run(cluster->thread, &leaving->task);
}
