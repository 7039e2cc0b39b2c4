/* ctl/nodes/many.c - finds the nodes and asks each of them, a few at the same time.
 *
 * The list of nodes comes from the store, through any node's management API, or from the command
 * line. Each node is then asked itself, because a node that is on the list may be dead, and because
 * an address may lead to another node: a node that advertises 127.0.0.1 is reached only on its own
 * machine. So each node must say the instance that the list has for it.
 *
 * One node that hangs takes up to fifteen seconds, so THREADS threads share the nodes. Each thread
 * has an HTTP client of its own, and takes the next node that nobody has taken. */
#include "ctl/nodes/many.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"

#define THREADS 16

static const char *
text_of(struct cn_arena *arena, const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? cn_arena_strndup(arena, text, strlen(text)) : otherwise;
}

static uint64_t
number(const json_t *object, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

/* --- the answer to GET /nodes */

static void
take_entry(struct cn_ctl_node *node, const json_t *entry)
{
    struct cn_arena *arena = &node->view.arena;
    const json_t *ahead = json_object_get(entry, "clockAheadMSec");

    node->state = text_of(arena, entry, "state", "");
    node->version = text_of(arena, entry, "version", "");
    node->metrics = text_of(arena, entry, "metrics", "");
    node->round_trip_us = number(entry, "storeRoundTripUSec");
    node->knows_clock = json_is_integer(ahead);
    node->ahead_ms = json_integer_value(ahead);
}

static void
take_store(struct cn_arena *arena, const json_t *from, struct cn_ctl_store_facts *store)
{
    const json_t *replicas = json_object_get(from, "replicas"), *replica;
    size_t i;

    store->url = text_of(arena, from, "url", "");
    store->version = text_of(arena, from, "version", "");
    store->used_bytes = number(from, "usedBytes");
    store->max_bytes = number(from, "maxBytes");
    store->commands_per_s = number(from, "commandsPerSecond");
    store->append_only = json_is_true(json_object_get(from, "appendOnly"));
    store->append_fsync = text_of(arena, from, "appendFsync", "");
    json_array_foreach(replicas, i, replica)
    {
        if (store->n_replicas == CN_CTL_REPLICAS_MAX)
            return;
        store->replicas[store->n_replicas].address = text_of(arena, replica, "address", "");
        store->replicas[store->n_replicas].online =
            json_is_true(json_object_get(replica, "online"));
        store->replicas[store->n_replicas].lag_bytes = number(replica, "lagBytes");
        store->replicas[store->n_replicas++].lag_s = number(replica, "lagSeconds");
    }
}

/* The answer to GET /nodes says which node has answered, lists all nodes of the store, and
 * describes the store. Only the list's entry about the answering node is taken here; take_list()
 * reads the others. What a server of another version does not send stays empty. */
void
cn_ctl_node_take(struct cn_ctl_node *node, struct cn_str answer, struct cn_ctl_store_facts *store)
{
    json_t *value = json_loadb(answer.ptr ? answer.ptr : "", answer.len, 0, NULL), *entry;
    struct cn_arena *arena = &node->view.arena;
    size_t i;

    node->name = text_of(arena, value, "name", node->management);
    node->instance = text_of(arena, value, "instance", "");
    node->duplicate = json_is_true(json_object_get(value, "duplicateName"));
    node->list_error = text_of(arena, value, "error", NULL);
    json_array_foreach(json_object_get(value, "nodes"), i, entry)
    {
        const char *instance = json_string_value(json_object_get(entry, "instance"));

        if (instance && strcmp(instance, node->instance) == 0)
            take_entry(node, entry);
    }
    if (store && json_is_object(json_object_get(value, "store")))
        take_store(arena, json_object_get(value, "store"), store);
    json_decref(value);
}

/* --- one node */

struct asking {
    struct cn_ctl_nodes *nodes;
    struct cn_ctl_store_facts *stores; /* of each node */
    bool with_metrics;
    atomic_uint next;
};

static int
ask(struct cn_ctl_http *http, struct cn_ctl_node *node, bool with_metrics,
    struct cn_ctl_store_facts *store, struct cn_error *err)
{
    struct cn_ctl_server server = {.http = http, .management = node->management};
    struct cn_error why;
    struct cn_buf body;
    int rc;

    cn_buf_init(&body, 0);
    rc = cn_ctl_http_get(http, node->management, "/nodes", &body, err);
    if (rc == 0)
        cn_ctl_node_take(node, cn_buf_str(&body), store);
    cn_buf_fini(&body);
    if (rc != 0 && rc != CN_E_NOT_FOUND) /* a server of an older version has no such list */
        return rc;
    if (node->expected && strcmp(node->expected, node->instance) != 0)
        return cn_fail(err, CN_E_CONFLICT,
                       "node %s answers at %s; if nodes listen on addresses that only their own "
                       "machine reaches, set --management-address and --advertise-management",
                       node->name, node->management);
    if ((rc = cn_ctl_read(&server, &node->view, err)) != 0)
        return rc;
    server.metrics = node->metrics;
    node->has_metrics =
        with_metrics && node->metrics[0] && cn_ctl_read_metrics(&server, &node->view, &why) == 0;
    return 0;
}

/* A node that did not answer keeps the name of the list, since ask() may have put another one into
 * it before it failed. */
static void *
thread_main(void *ctx)
{
    struct asking *asking = ctx;
    struct cn_ctl_http *http = cn_ctl_http_create();
    unsigned i;

    while ((i = atomic_fetch_add(&asking->next, 1)) < asking->nodes->n) {
        struct cn_ctl_node *node = &asking->nodes->nodes[i];
        const char *listed = node->name;

        node->answered = ask(http, node, asking->with_metrics, &asking->stores[i], &node->err) == 0;
        if (!node->answered)
            node->name = listed;
    }
    cn_ctl_http_destroy(http);
    return NULL;
}

/* The calling thread works, too, so one node needs no thread, and a system that has no thread left
 * only makes it slower. Every node describes the same store; the first description that has come is
 * shown. */
static void
ask_all(struct cn_ctl_nodes *nodes, bool with_metrics)
{
    struct asking asking = {.nodes = nodes, .with_metrics = with_metrics};
    pthread_t threads[THREADS];
    unsigned n = 0;

    asking.stores = cn_alloc(sizeof(*asking.stores) * (nodes->n + 1));
    while (n < THREADS - 1 && n + 1 < nodes->n &&
           pthread_create(&threads[n], NULL, thread_main, &asking) == 0)
        n++;
    thread_main(&asking);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    for (unsigned i = 0; i < nodes->n && !nodes->store.url; i++)
        nodes->store = asking.stores[i];
    cn_free(asking.stores);
}

/* --- which nodes there are */

static void
add_node(struct cn_ctl_nodes *nodes, const char *management, const char *name, const char *instance)
{
    struct cn_ctl_node *node = &nodes->nodes[nodes->n++];

    *node = (struct cn_ctl_node){.management = management,
                                 .expected = instance,
                                 .name = name ? name : management,
                                 .instance = "",
                                 .state = "",
                                 .version = "",
                                 .metrics = ""};
    cn_ctl_view_init(&node->view);
}

/* Reads "host1:8081,https://host2:8081,unix:/run/c.sock". An address without a scheme is one of
 * http. */
int
cn_ctl_nodes_split(struct cn_arena *arena, const char *text, const char ***out, unsigned *n,
                   struct cn_error *err)
{
    const char *end;

    *n = 1;
    for (end = text; *end; end++)
        *n += *end == ',';
    *out = cn_arena_alloc(arena, sizeof(**out) * *n);
    for (unsigned i = 0; i < *n; i++, text = end + 1) {
        end = strchrnul(text, ',');
        (*out)[i] =
            cn_arena_printf(arena, "%s%.*s",
                            strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0 ||
                                    strncmp(text, "unix:", 5) == 0
                                ? ""
                                : "http://",
                            (int)(end - text), text);
        if (end == text || *n > CN_CTL_NODES_MAX || cn_ctl_url_check((*out)[i], err))
            return cn_fail(err, CN_E_CONFIG,
                           "--nodes \"%.100s\": write a list of management addresses, as in "
                           "host1:8081,host2:8081",
                           text);
    }
    return 0;
}

static int
take_given(struct cn_ctl_nodes *nodes, const char *text, struct cn_error *err)
{
    const char **addresses;
    unsigned n;
    int rc = cn_ctl_nodes_split(&nodes->arena, text, &addresses, &n, err);

    if (rc != 0)
        return rc;
    nodes->nodes = cn_alloc(sizeof(*nodes->nodes) * n);
    for (unsigned i = 0; i < n; i++)
        add_node(nodes, addresses[i], NULL, NULL);
    return 0;
}

/* Makes the nodes of the server's list. A node without a management address is left out. */
static int
take_list(struct cn_ctl_nodes *nodes, const struct cn_ctl_options *options, struct cn_str answer,
          struct cn_error *err)
{
    json_t *value = json_loadb(answer.ptr ? answer.ptr : "", answer.len, 0, NULL), *entry;
    const json_t *list = json_object_get(value, "nodes");
    const size_t n =
        json_array_size(list) < CN_CTL_NODES_MAX ? json_array_size(list) : CN_CTL_NODES_MAX;
    int rc = 0;
    size_t i;

    if (!json_is_true(json_object_get(value, "shared")))
        rc = cn_fail(err, CN_E_NOT_FOUND,
                     "the server at %s has no shared store, which would have a list of nodes; name "
                     "the nodes: --nodes host1:8081,host2:8081",
                     options->management);
    nodes->nodes = cn_alloc(sizeof(*nodes->nodes) * (n + 1));
    for (i = 0; rc == 0 && i < n; i++) {
        const char *management;

        entry = json_array_get(list, i);
        management = text_of(&nodes->arena, entry, "management", NULL);
        if (management && cn_ctl_url_check(management, NULL) == 0)
            add_node(nodes, management, text_of(&nodes->arena, entry, "name", NULL),
                     text_of(&nodes->arena, entry, "instance", NULL));
    }
    json_decref(value);
    return rc;
}

static int
ask_for_list(struct cn_ctl_nodes *nodes, const struct cn_ctl_options *options, struct cn_error *err)
{
    struct cn_ctl_http *http = cn_ctl_http_create();
    struct cn_buf body;
    int rc;

    cn_buf_init(&body, 0);
    rc = cn_ctl_http_get(http, options->management, "/nodes", &body, err);
    if (rc == 0)
        rc = take_list(nodes, options, cn_buf_str(&body), err);
    cn_buf_fini(&body);
    cn_ctl_http_destroy(http);
    return rc;
}

struct cn_ctl_nodes *
cn_ctl_nodes_read(const struct cn_ctl_options *options, struct cn_error *err)
{
    struct cn_ctl_nodes *nodes = cn_alloc(sizeof(*nodes));

    err->code = 0;
    cn_arena_init(&nodes->arena);
    nodes->at_us = cn_now_us();
    if (options->nodes)
        take_given(nodes, options->nodes, err);
    else
        ask_for_list(nodes, options, err);
    if (err->code == 0)
        ask_all(nodes, options->command != CN_CTL_STATUS);
    return nodes;
}

void
cn_ctl_nodes_free(struct cn_ctl_nodes *nodes)
{
    if (!nodes)
        return;
    for (unsigned i = 0; i < nodes->n; i++)
        cn_ctl_view_fini(&nodes->nodes[i].view);
    cn_arena_fini(&nodes->arena);
    cn_free(nodes->nodes);
    cn_free(nodes);
}

const struct cn_ctl_node *
cn_ctl_nodes_find(const struct cn_ctl_nodes *nodes, const struct cn_ctl_node *like)
{
    for (unsigned i = 0; i < nodes->n; i++)
        if (nodes->nodes[i].answered && strcmp(nodes->nodes[i].instance, like->instance) == 0 &&
            strcmp(nodes->nodes[i].management, like->management) == 0)
            return &nodes->nodes[i];
    return NULL;
}
