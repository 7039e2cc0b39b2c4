/* management/nodes/nodes.c - renews this node's entry in the shared store and reads the list of all
 * nodes.
 *
 * The store is asked on a thread of its own, because every call may wait for the store's timeout.
 * The thread has two tasks, the renewal and the reading, each of which is under way at most once.
 * Their results come back to loop 0. Other loops read only the table of URLs (node_table.h).
 *
 * The list is read when somebody asks for it, and otherwise every few seconds. With n nodes, the
 * list has n entries and is read by n nodes, so the pause grows with n: a node reads no more than
 * READ_PER_S entries in a second, and a thousand nodes read no more than 10,000 in all.
 *
 * Two nodes with the same name have an entry each. An entry of our name may also be left from a
 * process that was killed, so it counts only if this node has seen it renewed. */
#include "management/nodes/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/state_store_url.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/loop/file_thread.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/api/json/json_text.h"
#include "management/management_priv.h"
#include "management/nodes/node_entry.h"
#include "management/nodes/node_table.h"
#include "store/shared_nodes.h"

#define TIMEOUT_MS 2000 /* the longest wait for the store, as storeTimeoutMSec's default */
#define LEAVE_MS 500    /* the same when the server ends */
#define FRESH_MS 1000   /* a list that is younger is not read again */
#define READ_PER_S 10   /* entries that a node reads without being asked */

struct waiter {
    struct cn_list link;
    cn_nodes_done_fn done;
    void *ctx;
};

/* Entries of other processes with our name. */
struct namesakes {
    struct cn_node_seen seen[CN_SHARED_NAMESAKES_MAX];
    char management[CN_NODE_URL_MAX]; /* of one of them */
    unsigned n;
};

struct cn_nodes {
    struct cn_management *management;
    struct cn_node node;
    struct cn_shared_link *link; /* the thread's */
    struct cn_file_thread *thread;
    struct cn_timer timer; /* the next renewal */
    bool begun, told_lost;

    /* The renewal under way. */
    struct cn_file_task renew;
    bool renewing, renew_again;
    char *text;
    struct cn_shared_renewal renewal;
    struct namesakes found, known; /* found now, and known from the renewal before */
    struct cn_error renew_err;

    /* The reading under way, and the list that was read last. */
    struct cn_file_task read;
    bool reading;
    json_t *coming, *list;
    struct cn_shared_facts coming_facts, facts;
    struct cn_error read_err;
    uint64_t read_ms; /* 0: not yet */
    struct cn_list waiters;

    struct cn_node_table table;
};

/* --- begin and end */

static void on_timer(struct cn_timer *timer);
static void work_renew(struct cn_file_task *task);
static void done_renew(struct cn_file_task *task);
static void work_read(struct cn_file_task *task);
static void done_read(struct cn_file_task *task);

int
cn_nodes_create(struct cn_management *management, struct cn_nodes **out, struct cn_error *err)
{
    const struct cn_server_config *config = management->config;
    struct cn_state_store_text text;
    struct cn_nodes *nodes;
    struct cn_node node = {0};
    int rc = cn_node_init(&node, config, err);

    *out = NULL;
    if (rc == 0)
        rc = cn_state_store_text_set(&text, cn_str_from(config->state_store), err);
    if (rc == 0 && !text.url[0] && config->redirect_sequences)
        return cn_fail(err, CN_E_CONFIG,
                       "--redirect-sequences needs a store that several nodes share; set "
                       "--state-store");
    if (rc != 0 || !text.url[0])
        return rc;
    nodes = cn_alloc(sizeof(*nodes));
    nodes->management = management;
    nodes->node = node;
    nodes->renew = (struct cn_file_task){.work = work_renew, .done = done_renew};
    nodes->read = (struct cn_file_task){.work = work_read, .done = done_read};
    cn_timer_init(&nodes->timer, on_timer);
    cn_list_init(&nodes->waiters);
    cn_node_table_init(&nodes->table);
    rc = cn_shared_link_open(text.url, TIMEOUT_MS, &nodes->link, err);
    if (rc == 0)
        rc = cn_file_thread_create(management->home, 1, &nodes->thread, err);
    if (rc != 0) {
        cn_nodes_destroy(nodes);
        return rc;
    }
    *out = nodes;
    return 0;
}

void
cn_nodes_destroy(struct cn_nodes *nodes)
{
    struct cn_error err;

    if (!nodes)
        return;
    cn_file_thread_destroy(nodes->thread);
    cn_timer_cancel(&nodes->timer); /* the end of a renewal that was under way has set it */
    if (nodes->begun) {
        cn_shared_link_hurry(nodes->link, LEAVE_MS);
        cn_shared_nodes_leave(nodes->link, nodes->node.name, nodes->node.instance, &err);
    }
    cn_shared_link_close(nodes->link);
    json_decref(nodes->coming);
    json_decref(nodes->list);
    free(nodes->text); /* jansson's */
    cn_node_table_fini(&nodes->table);
    cn_free(nodes);
}

/* --- the renewal */

static void
on_namesake(void *ctx, struct cn_str entry, struct cn_str value)
{
    struct namesakes *found = ctx;
    json_t *json = cn_node_parse(value);
    const char *management = json_string_value(json_object_get(json, "management"));

    (void)entry;
    if (json && found->n < CN_SHARED_NAMESAKES_MAX) {
        cn_node_see(json, &found->seen[found->n++]);
        snprintf(found->management, sizeof(found->management), "%s", management ? management : "");
    }
    json_decref(json);
}

/* A connection that the store has closed since the last renewal is noticed by the first attempt. */
static void
work_renew(struct cn_file_task *task)
{
    struct cn_nodes *nodes = cn_container_of(task, struct cn_nodes, renew);

    for (int attempt = 0; attempt < 2; attempt++) {
        nodes->found.n = 0;
        nodes->renew_err.code = 0;
        if (cn_shared_nodes_renew(nodes->link, &nodes->renewal, on_namesake, &nodes->found,
                                  &nodes->renew_err) == 0)
            return;
    }
}

static void
start_renewal(struct cn_nodes *nodes)
{
    struct cn_management *management = nodes->management;
    struct cn_node *node = &nodes->node;
    json_t *json;

    if (nodes->renewing) {
        nodes->renew_again = true;
        return;
    }
    nodes->renewing = true;
    nodes->renew_again = false;
    node->renewal++;
    node->state = cn_health_count(&management->health, CN_UNREADY_STOPPING) ? "draining"
                  : cn_management_healthy(management)                       ? "ready"
                  : !atomic_load(&management->started)                      ? "starting"
                                                                            : "unready";
    json = cn_node_json(node);
    free(nodes->text); /* jansson's */
    nodes->text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    nodes->renewal = (struct cn_shared_renewal){.name = node->name,
                                                .instance = node->instance,
                                                .value = cn_str_from(nodes->text),
                                                .ttl_ms = node->ttl_ms};
    cn_file_thread_run(nodes->thread, &nodes->renew);
}

/* Was one of the namesakes renewed since the last time? */
static bool
is_renewed(const struct cn_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->found.n; i++)
        for (unsigned k = 0; k < nodes->known.n; k++)
            if (strcmp(nodes->found.seen[i].instance, nodes->known.seen[k].instance) == 0 &&
                nodes->found.seen[i].renewal > nodes->known.seen[k].renewal)
                return true;
    return false;
}

static void
look_at_namesakes(struct cn_nodes *nodes)
{
    struct cn_node *node = &nodes->node;
    const bool had = node->has_duplicate;

    node->has_duplicate = is_renewed(nodes) || (had && nodes->found.n > 0);
    nodes->known = nodes->found;
    if (node->has_duplicate && !had)
        cn_log(CN_LOG_ERROR,
               "event=node_name_taken name=%s other=%s note=\"another node has the same name: give "
               "each a --node-name of its own\"",
               node->name, nodes->known.management);
    else if (had && !node->has_duplicate)
        cn_log(CN_LOG_INFO, "event=node_name_free name=%s", node->name);
}

/* Logs once that the store is lost, and once that it is back. */
static void
tell_store(struct cn_nodes *nodes)
{
    const bool lost = nodes->renew_err.code != 0;
    char quoted[CN_ERROR_MESSAGE_MAX];

    if (lost && !nodes->told_lost)
        cn_log(CN_LOG_WARN, "event=nodes_unreachable reason=%s",
               cn_log_quote(nodes->renew_err.message, strlen(nodes->renew_err.message), quoted,
                            sizeof(quoted)));
    else if (!lost && nodes->told_lost)
        cn_log(CN_LOG_INFO, "event=nodes_reachable name=%s", nodes->node.name);
    nodes->told_lost = lost;
}

static void start_reading(struct cn_nodes *nodes);

static void
done_renew(struct cn_file_task *task)
{
    struct cn_nodes *nodes = cn_container_of(task, struct cn_nodes, renew);
    const uint64_t now_ms = cn_loop_now_ms(nodes->management->home);
    const uint64_t pause_ms = (uint64_t)json_array_size(nodes->list) * 1000 / READ_PER_S;

    nodes->renewing = false;
    tell_store(nodes);
    if (nodes->renew_err.code == 0) {
        look_at_namesakes(nodes);
        nodes->node.round_trip_us = nodes->renewal.round_trip_us;
        nodes->node.knows_clock = nodes->renewal.store_wall_ms != 0;
        nodes->node.ahead_ms =
            (int64_t)nodes->renewal.wall_ms - (int64_t)nodes->renewal.store_wall_ms;
        if (nodes->read_ms == 0 || now_ms - nodes->read_ms >= pause_ms)
            start_reading(nodes);
    }
    if (nodes->renew_again)
        start_renewal(nodes);
    else if (!nodes->management->drained)
        cn_timer_set(cn_loop_wheel(nodes->management->home), &nodes->timer,
                     now_ms + nodes->node.ttl_ms / 3);
}

static void
on_timer(struct cn_timer *timer)
{
    start_renewal(cn_container_of(timer, struct cn_nodes, timer));
}

void
cn_nodes_begin(struct cn_nodes *nodes, const char *inference, const char *management,
               const char *metrics)
{
    if (!nodes)
        return;
    cn_assert_on_loop(nodes->management->home);
    cn_node_set_addresses(&nodes->node, nodes->management->config, inference, management, metrics);
    cn_log(CN_LOG_INFO, "event=node name=%s inference=%s management=%s", nodes->node.name,
           nodes->node.inference, nodes->node.management);
    nodes->begun = true;
    start_renewal(nodes);
}

void
cn_nodes_changed(struct cn_nodes *nodes)
{
    if (nodes && nodes->begun)
        start_renewal(nodes);
}

/* --- the list */

static void
on_node(void *ctx, struct cn_str entry, struct cn_str value)
{
    json_t *json = cn_node_parse(value);

    (void)entry;
    if (json)
        json_array_append_new(ctx, json);
}

static void
work_read(struct cn_file_task *task)
{
    struct cn_nodes *nodes = cn_container_of(task, struct cn_nodes, read);
    int rc = CN_E_STORE_UNREACHABLE;

    for (int attempt = 0; rc == CN_E_STORE_UNREACHABLE && attempt < 2; attempt++) {
        json_array_clear(nodes->coming);
        nodes->read_err.code = 0;
        rc = cn_shared_nodes_read(nodes->link, on_node, nodes->coming, &nodes->read_err);
        if (rc == 0)
            rc = cn_shared_link_facts(nodes->link, &nodes->coming_facts, &nodes->read_err);
    }
}

static void
start_reading(struct cn_nodes *nodes)
{
    if (nodes->reading)
        return;
    nodes->reading = true;
    nodes->coming = json_array();
    cn_file_thread_run(nodes->thread, &nodes->read);
}

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
store_json(const struct cn_nodes *nodes)
{
    const struct cn_shared_facts *facts = &nodes->facts;
    json_t *out = json_object(), *replicas = json_array(), *replica;
    char shown[CN_STATE_STORE_SHOWN_MAX];

    put(out, "url",
        json_string(cn_state_store_url_shown(nodes->management->config->state_store, shown)));
    put(out, "version", json_string(facts->version));
    put(out, "usedBytes", json_integer((json_int_t)facts->used_bytes));
    put(out, "maxBytes",
        facts->max_bytes ? json_integer((json_int_t)facts->max_bytes) : json_null());
    put(out, "commandsPerSecond", json_integer((json_int_t)facts->commands_per_s));
    put(out, "appendOnly", json_boolean(facts->has_aof));
    put(out, "appendFsync", facts->fsync[0] ? json_string(facts->fsync) : json_null());
    for (uint32_t i = 0; i < facts->n_replicas; i++) {
        replica = json_object();
        put(replica, "address", json_string(facts->replicas[i].address));
        put(replica, "online", json_boolean(facts->replicas[i].online));
        put(replica, "lagBytes", json_integer((json_int_t)facts->replicas[i].lag_bytes));
        put(replica, "lagSeconds", json_integer(facts->replicas[i].lag_s));
        json_array_append_new(replicas, replica);
    }
    put(out, "replicas", replicas);
    return out;
}

/* The answer to GET /nodes. If the store cannot be reached, it has the list as it was read last. */
static json_t *
answer(const struct cn_nodes *nodes)
{
    const bool failed = nodes->read_err.code != 0;
    json_t *out = json_object();

    put(out, "shared", json_true());
    put(out, "name", json_string(nodes->node.name));
    put(out, "instance", json_string(nodes->node.instance));
    put(out, "duplicateName", json_boolean(nodes->node.has_duplicate));
    put(out, "error", failed ? cn_json_text(nodes->read_err.message) : json_null());
    put(out, "nodes", nodes->list ? json_deep_copy(nodes->list) : json_array());
    put(out, "store", failed ? json_null() : store_json(nodes));
    return out;
}

static void
done_read(struct cn_file_task *task)
{
    struct cn_nodes *nodes = cn_container_of(task, struct cn_nodes, read);
    struct cn_list *node;

    nodes->reading = false;
    if (nodes->read_err.code == 0) {
        json_decref(nodes->list);
        nodes->list = nodes->coming;
        nodes->facts = nodes->coming_facts;
        nodes->read_ms = cn_loop_now_ms(nodes->management->home);
        cn_node_table_fill(&nodes->table, nodes->list);
    } else {
        json_decref(nodes->coming);
    }
    nodes->coming = NULL;
    while ((node = cn_list_pop_front(&nodes->waiters))) {
        struct waiter *waiter = cn_container_of(node, struct waiter, link);

        waiter->done(waiter->ctx, answer(nodes), NULL);
        cn_free(waiter);
        cn_management_op_end(nodes->management);
    }
}

void
cn_nodes_list(struct cn_nodes *nodes, cn_nodes_done_fn done, void *ctx)
{
    struct waiter *waiter;
    json_t *out;

    if (!nodes) {
        out = json_object();
        put(out, "shared", json_false());
        put(out, "nodes", json_array());
        done(ctx, out, NULL);
        return;
    }
    if (!nodes->reading && nodes->read_err.code == 0 && nodes->read_ms != 0 &&
        cn_loop_now_ms(nodes->management->home) - nodes->read_ms < FRESH_MS) {
        done(ctx, answer(nodes), NULL);
        return;
    }
    waiter = cn_alloc(sizeof(*waiter));
    waiter->done = done;
    waiter->ctx = ctx;
    cn_list_push_back(&nodes->waiters, &waiter->link);
    cn_management_op_begin(nodes->management);
    start_reading(nodes);
}

/* --- what others ask */

const char *
cn_nodes_own_name(const struct cn_nodes *nodes)
{
    return nodes ? nodes->node.name : NULL;
}

bool
cn_nodes_find_url(struct cn_nodes *nodes, struct cn_str name, char out[CN_NODE_URL_MAX])
{
    return nodes && cn_node_table_find(&nodes->table, name, out);
}

bool
cn_nodes_home(struct cn_nodes *nodes, struct cn_str sequence, char out[CN_NODE_URL_MAX])
{
    return nodes && cn_node_table_home(&nodes->table, nodes->node.name, sequence, out);
}

struct cn_file_thread *
cn_nodes_thread(struct cn_nodes *nodes)
{
    return nodes->thread;
}

struct cn_shared_link *
cn_nodes_link(struct cn_nodes *nodes)
{
    return nodes->link;
}
