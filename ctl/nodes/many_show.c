/* ctl/nodes/many_show.c - prints several nodes as a table or as JSON.
 *
 * The table for `status` has a line for each node, also for one that does not answer, with the
 * reasons below the table. `top` has two readings of all nodes and shows the differences; nodes are
 * matched by their instance, so one that was restarted in between begins at rates of 0 and not at
 * negative ones. */
#include <inttypes.h>
#include <string.h>

#include "ctl/columns.h"
#include "ctl/json_out.h"
#include "ctl/nodes/many.h"

bool
cn_ctl_nodes_healthy(const struct cn_ctl_nodes *nodes)
{
    bool healthy = nodes->n > 0;

    for (unsigned i = 0; i < nodes->n; i++)
        healthy = healthy && nodes->nodes[i].answered &&
                  cn_ctl_view_totals(&nodes->nodes[i].view).healthy;
    return healthy;
}

/* A node has two opinions about itself: the word in the store's list, such as "draining", and
 * whether its models are healthy. The first one wins unless it is "ready". */
static const char *
state_of(const struct cn_ctl_node *node)
{
    if (!node->answered)
        return "no answer";
    if (node->state[0] && strcmp(node->state, "ready") != 0)
        return node->state;
    return cn_ctl_view_totals(&node->view).healthy ? "ready" : "unhealthy";
}

/* --- for people */

static void
begin_table(struct cn_ctl_table *table, const char *align, const char *const *heads)
{
    cn_ctl_table_init(table, align);
    for (; *heads; heads++)
        cn_ctl_table_add(table, "%s", *heads);
}

static void
add_round_trip(struct cn_ctl_table *table, const struct cn_ctl_node *node)
{
    if (node->answered && node->round_trip_us)
        cn_ctl_table_add(table, "%.1f ms", (double)node->round_trip_us / 1000);
    else
        cn_ctl_table_add(table, "-");
}

static void
put_store(const struct cn_ctl_nodes *nodes, struct cn_buf *out)
{
    const struct cn_ctl_store_facts *store = &nodes->store;
    uint64_t lag = 0;

    if (!store->url)
        return;
    for (unsigned i = 0; i < store->n_replicas; i++)
        lag = store->replicas[i].lag_bytes > lag ? store->replicas[i].lag_bytes : lag;
    cn_buf_puts(out, "\nstore  ");
    cn_ctl_put_plain(out, store->url);
    cn_buf_puts(out, "  version ");
    cn_ctl_put_plain(out, store->version);
    cn_buf_puts(out, "  memory ");
    cn_ctl_put_bytes(out, store->used_bytes);
    cn_buf_printf(out, "  commands/s %" PRIu64 "  replicas %u", store->commands_per_s,
                  store->n_replicas);
    if (store->n_replicas) {
        cn_buf_puts(out, ", at most ");
        cn_ctl_put_bytes(out, lag);
        cn_buf_puts(out, " behind");
    }
    cn_buf_puts(out, "\n");
}

/* Says why nodes have not answered. */
static void
put_silent(const struct cn_ctl_nodes *nodes, struct cn_buf *out)
{
    for (unsigned i = 0; i < nodes->n; i++) {
        if (nodes->nodes[i].answered)
            continue;
        cn_buf_puts(out, "\n");
        cn_ctl_put_plain(out, nodes->nodes[i].name);
        cn_buf_puts(out, ": ");
        cn_ctl_put_plain(out, nodes->nodes[i].err.message);
        cn_buf_puts(out, "\n");
    }
}

static void
show_status(const struct cn_ctl_nodes *nodes, struct cn_buf *out)
{
    static const char *const heads[] = {"NODE",  "STATE",   "VERSION", "WORKERS",    "SEQUENCES",
                                        "STEPS", "WAITING", "STORE",   "MANAGEMENT", NULL};
    struct cn_ctl_table table;

    begin_table(&table, "lllrrrrrl", heads);
    for (unsigned i = 0; i < nodes->n; i++) {
        const struct cn_ctl_node *node = &nodes->nodes[i];
        const struct cn_ctl_totals totals = cn_ctl_view_totals(&node->view);

        cn_ctl_table_add(&table, "%s", node->name);
        cn_ctl_table_add(&table, "%s", state_of(node));
        cn_ctl_table_add(&table, "%s", node->version[0] ? node->version : "-");
        if (node->answered) {
            cn_ctl_table_add(&table, "%" PRIu32 "/%" PRIu32, totals.ready, totals.want);
            cn_ctl_table_add(&table, "%" PRIu64, totals.live_sequences);
            cn_ctl_table_add(&table, "%" PRIu64, totals.steps);
            cn_ctl_table_add(&table, "%" PRIu64, totals.waiting);
        } else {
            for (int k = 0; k < 4; k++)
                cn_ctl_table_add(&table, "-");
        }
        add_round_trip(&table, node);
        cn_ctl_table_add(&table, "%s", node->management);
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
    put_store(nodes, out);
    put_silent(nodes, out);
}

struct rates {
    double steps, conflicts; /* each second */
};

/* What has happened on a node between two readings. A node that was not there at the first reading
 * has the rates 0. */
static struct rates
rates_of(const struct cn_ctl_nodes *before, const struct cn_ctl_node *node)
{
    const struct cn_ctl_node *old = cn_ctl_nodes_find(before, node);
    struct rates rates = {0};
    uint64_t us;

    if (!old || !node->answered)
        return rates;
    us = node->view.at_us - old->view.at_us;
    rates.steps = cn_ctl_rate(cn_ctl_view_totals(&old->view).steps,
                              cn_ctl_view_totals(&node->view).steps, us);
    if (old->has_metrics && node->has_metrics)
        rates.conflicts = cn_ctl_rate(old->view.metrics[CN_M_STORE_CONFLICTS],
                                      node->view.metrics[CN_M_STORE_CONFLICTS], us);
    return rates;
}

static void
show_top(const struct cn_ctl_nodes *before, const struct cn_ctl_nodes *now, struct cn_buf *out)
{
    static const char *const heads[] = {"NODE",    "STATE",    "STEPS/S",     "SHARE", "SEQUENCES",
                                        "WAITING", "INFLIGHT", "CONFLICTS/S", "STORE", NULL};
    struct cn_ctl_table table;
    double all = 0;

    for (unsigned i = 0; i < now->n; i++)
        all += rates_of(before, &now->nodes[i]).steps;
    cn_buf_printf(out, "%u nodes  %s  steps/s %.0f\n\n", now->n,
                  cn_ctl_nodes_healthy(now) ? "healthy" : "unhealthy", all);
    begin_table(&table, "llrrrrrrr", heads);
    for (unsigned i = 0; i < now->n; i++) {
        const struct cn_ctl_node *node = &now->nodes[i];
        const struct cn_ctl_totals totals = cn_ctl_view_totals(&node->view);
        const struct rates rates = rates_of(before, node);

        cn_ctl_table_add(&table, "%s", node->name);
        cn_ctl_table_add(&table, "%s", state_of(node));
        cn_ctl_table_add(&table, "%.0f", rates.steps);
        cn_ctl_table_add(&table, "%.0f%%", all > 0 ? rates.steps / all * 100 : 0);
        cn_ctl_table_add(&table, "%" PRIu64, totals.live_sequences);
        cn_ctl_table_add(&table, "%" PRIu64, totals.waiting);
        cn_ctl_table_add(&table, "%" PRIu64, totals.in_flight);
        cn_ctl_table_add(&table, node->has_metrics ? "%.0f" : "-", rates.conflicts);
        add_round_trip(&table, node);
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
    put_store(now, out);
    put_silent(now, out);
}

/* --- for programs */

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value ? value : json_null());
}

static json_t *
number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *
node_json(const struct cn_ctl_node *node)
{
    const struct cn_ctl_totals totals = cn_ctl_view_totals(&node->view);
    json_t *out = json_object();

    put(out, "name", json_string(node->name));
    put(out, "instance", json_string(node->instance));
    put(out, "management", json_string(node->management));
    put(out, "state", json_string(state_of(node)));
    put(out, "error", node->answered ? NULL : json_string(node->err.message));
    put(out, "version", json_string(node->version));
    put(out, "duplicateName", json_boolean(node->duplicate));
    put(out, "storeRoundTripUSec", node->round_trip_us ? number(node->round_trip_us) : NULL);
    put(out, "clockAheadMSec", node->knows_clock ? json_integer(node->ahead_ms) : NULL);
    if (!node->answered)
        return out;
    put(out, "healthy", json_boolean(totals.healthy));
    put(out, "workersReady", number(totals.ready));
    put(out, "workersExpected", number(totals.want));
    put(out, "liveSequences", number(totals.live_sequences));
    put(out, "steps", number(totals.steps));
    put(out, "waiting", number(totals.waiting));
    put(out, "inFlight", number(totals.in_flight));
    return out;
}

static json_t *
store_json(const struct cn_ctl_store_facts *store)
{
    json_t *out, *replicas = json_array();

    if (!store->url) {
        json_decref(replicas);
        return NULL;
    }
    out = json_object();
    put(out, "url", json_string(store->url));
    put(out, "version", json_string(store->version));
    put(out, "usedBytes", number(store->used_bytes));
    put(out, "maxBytes", store->max_bytes ? number(store->max_bytes) : NULL);
    put(out, "commandsPerSecond", number(store->commands_per_s));
    put(out, "appendOnly", json_boolean(store->append_only));
    put(out, "appendFsync", store->append_fsync[0] ? json_string(store->append_fsync) : NULL);
    for (unsigned i = 0; i < store->n_replicas; i++) {
        json_t *replica = json_object();

        put(replica, "address", json_string(store->replicas[i].address));
        put(replica, "online", json_boolean(store->replicas[i].online));
        put(replica, "lagBytes", number(store->replicas[i].lag_bytes));
        put(replica, "lagSeconds", number(store->replicas[i].lag_s));
        json_array_append_new(replicas, replica);
    }
    put(out, "replicas", replicas);
    return out;
}

/* `before` is NULL if there are no rates. */
static void
put_json(const struct cn_ctl_nodes *before, const struct cn_ctl_nodes *now, struct cn_buf *out)
{
    json_t *value = json_object(), *list = json_array();

    for (unsigned i = 0; i < now->n; i++) {
        json_t *entry = node_json(&now->nodes[i]);

        if (before) {
            const struct rates rates = rates_of(before, &now->nodes[i]);

            put(entry, "stepsPerSecond", json_real(rates.steps));
            put(entry, "conflictsPerSecond", json_real(rates.conflicts));
        }
        json_array_append_new(list, entry);
    }
    put(value, "healthy", json_boolean(cn_ctl_nodes_healthy(now)));
    put(value, "nodes", list);
    put(value, "store", store_json(&now->store));
    cn_ctl_json_print(value, before != NULL, out);
}

void
cn_ctl_nodes_status(const struct cn_ctl_nodes *nodes, bool json, struct cn_buf *out)
{
    if (json)
        put_json(NULL, nodes, out);
    else
        show_status(nodes, out);
}

void
cn_ctl_nodes_top(const struct cn_ctl_nodes *before, const struct cn_ctl_nodes *now, bool json,
                 struct cn_buf *out)
{
    if (json)
        put_json(before, now, out);
    else
        show_top(before, now, out);
}
