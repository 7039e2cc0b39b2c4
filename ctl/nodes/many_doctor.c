/* ctl/nodes/many_doctor.c - the rules of continuo-ctl doctor for several nodes: what is wrong
 * between them, and with the store that they share.
 *
 * As in doctor.c, a rule is rather silent than wrong, and the thresholds stand at the head of the
 * file. Each node is diagnosed by itself, too, with the rules for one server. */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "ctl/doctor_show.h"
#include "ctl/json_out.h"
#include "ctl/nodes/many.h"

/* A node is hot if it had this many times the mean of the steps of the last minutes, and there were
 * enough of them. */
#define HOT_TIMES 1.5
#define HOT_STEPS_MIN 1000
#define SLOW_STORE_US 20000 /* a round trip within one data centre takes less than 1 ms */
#define CLOCKS_DIFFER_MS 1000
#define CONFLICT_PERCENT 1
#define LAG_BYTES_MAX (8u << 20)
#define LAG_S_MAX 10
#define MEMORY_PERCENT 80

#define SAY(diagnosis, ...) cn_arena_printf(&(diagnosis)->arena, __VA_ARGS__)

static struct cn_ctl_finding *
find(struct cn_ctl_diagnosis *diagnosis, bool is_note, const char *what)
{
    return cn_ctl_diagnosis_add(diagnosis, is_note, what);
}

static void
silent(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_node *node)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false, SAY(diagnosis, "node %s does not answer", node->name));

    finding->why = SAY(diagnosis, "%s", node->err.message);
    finding->advice =
        SAY(diagnosis,
            "check whether it runs and whether this machine reaches %s; other nodes serve its "
            "sequences. A node that was killed leaves the list after its --node-ttl",
            node->management);
}

static void
names(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_node *node)
{
    struct cn_ctl_finding *finding;

    if (!node->duplicate)
        return;
    finding = find(diagnosis, false,
                   SAY(diagnosis, "another node is also called %s (this one is at %s)", node->name,
                       node->management));
    finding->why =
        "both renew an entry of this name in the list of nodes, so whoever looks for the "
        "node by its name may find the other one";
    finding->advice = "give each node a --node-name of its own";
}

static void
store_of_node(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_node *node)
{
    struct cn_ctl_finding *finding;

    if (node->list_error) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "node %s cannot reach the shared store", node->name));
        finding->why = SAY(diagnosis, "%s", node->list_error);
        finding->advice = "its steps get status 503 until it can; check the network between the "
                          "node and the store, and the store itself";
    } else if (node->round_trip_us >= SLOW_STORE_US) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "a round trip from node %s to the store takes %.1f ms",
                           node->name, (double)node->round_trip_us / 1000));
        finding->why = "each batch of steps waits for one round trip before its answers leave";
        finding->advice = "see whether other nodes are as slow (continuo-ctl --all status): if so, "
                          "the store is busy or far away (redis-cli --latency), if not, this "
                          "node's network or processor is";
    }
    if (node->knows_clock &&
        (node->ahead_ms > CLOCKS_DIFFER_MS || -node->ahead_ms > CLOCKS_DIFFER_MS)) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "the clock of node %s is %.1f s %s that of the store", node->name,
                     (double)(node->ahead_ms > 0 ? node->ahead_ms : -node->ahead_ms) / 1000,
                     node->ahead_ms > 0 ? "ahead of" : "behind"));
        finding->why = "a node whose clock is ahead closes idle sequences that much too early";
        finding->advice = "synchronise the clocks of all nodes and of the store (timedatectl)";
    }
}

static void
versions(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_nodes *nodes)
{
    const struct cn_ctl_node *first = NULL;
    struct cn_ctl_finding *finding;

    for (unsigned i = 0; i < nodes->n; i++) {
        const struct cn_ctl_node *node = &nodes->nodes[i];

        if (!node->answered || !node->version[0])
            continue;
        if (!first)
            first = node;
        if (strcmp(first->version, node->version) == 0)
            continue;
        finding = find(diagnosis, true,
                       SAY(diagnosis, "nodes have different versions: %s has %s, %s has %s",
                           first->name, first->version, node->name, node->version));
        finding->why = "this is as it should be during an upgrade, and only then";
        finding->advice = "upgrade the nodes that are left";
        return;
    }
}

/* Is one node sent many more steps than the others?
 *
 * It compares the node with the most steps with the mean of all. With two nodes, three quarters of
 * the steps are too many; with ten nodes, 15 %. Below HOT_STEPS_MIN steps chance alone could do
 * that. */
static void
hot(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_nodes *nodes)
{
    const struct cn_ctl_node *most = NULL;
    struct cn_ctl_finding *finding;
    uint64_t sum = 0;
    unsigned n = 0;

    for (unsigned i = 0; i < nodes->n; i++) {
        const struct cn_ctl_node *node = &nodes->nodes[i];

        if (!node->has_metrics)
            continue;
        n++;
        sum += node->view.metrics[CN_M_RECENT_JOBS];
        if (!most || node->view.metrics[CN_M_RECENT_JOBS] > most->view.metrics[CN_M_RECENT_JOBS])
            most = node;
    }
    if (n < 2 || sum < HOT_STEPS_MIN ||
        (double)most->view.metrics[CN_M_RECENT_JOBS] < HOT_TIMES * (double)sum / n)
        return;
    finding =
        find(diagnosis, true,
             SAY(diagnosis, "node %s had %.0f%% of the last minutes' steps, of %u nodes",
                 most->name, (double)most->view.metrics[CN_M_RECENT_JOBS] * 100 / (double)sum, n));
    finding->why = "the proxy sends it more sequences than the others, or a few sequences have "
                   "many steps";
    finding->advice = "check the proxy's hash ring (its size, and the weights of the nodes)";
}

/* A write is lost when another node has written the sequence's state since this node read it. Now
 * and then that is normal, when a proxy moves a sequence; more than CONFLICT_PERCENT of the steps
 * means that sequences wander all the time. */
static void
conflicts(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_nodes *nodes)
{
    uint64_t lost = 0, steps = 0;
    struct cn_ctl_finding *finding;

    for (unsigned i = 0; i < nodes->n; i++) {
        if (!nodes->nodes[i].has_metrics)
            continue;
        lost += nodes->nodes[i].view.metrics[CN_M_STORE_CONFLICTS];
        steps += cn_ctl_view_totals(&nodes->nodes[i].view).steps;
    }
    if (steps < HOT_STEPS_MIN || lost * 100 < steps * CONFLICT_PERCENT)
        return;
    finding =
        find(diagnosis, true,
             SAY(diagnosis, "%" PRIu64 " writes lost against another node, in %" PRIu64 " steps",
                 lost, steps));
    finding->why = "the steps of one sequence reach several nodes, each of which must then read "
                   "the state again; the answers are right, but cost more";
    finding->advice = "let the proxy route by the sequence's id (docs/behind-a-proxy.md)";
}

static void
store(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_store_facts *facts)
{
    struct cn_ctl_finding *finding;

    if (!facts->url)
        return;
    if (facts->max_bytes && facts->used_bytes * 100 >= facts->max_bytes * MEMORY_PERCENT) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "the store uses %" PRIu64 " of %" PRIu64 " MB",
                           facts->used_bytes / 1000000, facts->max_bytes / 1000000));
        finding->why = "when it is full, steps are refused with status 507";
        finding->advice = "raise the store's maxmemory, lower sequenceMaxIdleMSec, or let clients "
                          "end their sequences";
    }
    if (!facts->append_only) {
        finding = find(diagnosis, true, "the store keeps no append-only file");
        finding->why = "if it is killed, it comes back without the last steps, or with none";
        finding->advice = "set appendonly yes on the store";
    } else if (strcmp(facts->append_fsync, "everysec") == 0) {
        finding = find(diagnosis, true, "the store syncs its file once a second");
        finding->why = "on a busy disk it answers up to two seconds before it writes, so if it is "
                       "killed and comes back as the primary, it lacks these steps; with "
                       "durability power, a step waits up to a second";
        finding->advice = "set appendfsync on the store: to always for models with durability "
                          "power, else to always or no (docs/shared-store.md)";
    }
    for (unsigned i = 0; i < facts->n_replicas; i++) {
        if (facts->replicas[i].online && facts->replicas[i].lag_bytes <= LAG_BYTES_MAX &&
            facts->replicas[i].lag_s <= LAG_S_MAX)
            continue;
        finding =
            find(diagnosis, false,
                 facts->replicas[i].online
                     ? SAY(diagnosis,
                           "the store's replica %s is %" PRIu64 " kB behind, and was silent for "
                           "%" PRIu64 " s",
                           facts->replicas[i].address, facts->replicas[i].lag_bytes / 1000,
                           facts->replicas[i].lag_s)
                     : SAY(diagnosis, "the store's replica %s is not in step with the primary",
                           facts->replicas[i].address));
        finding->why = "a failover to it would lose the steps that it lacks; with state.replicas, "
                       "steps wait for replicas";
        finding->advice = "check the replica and the network between it and the primary";
    }
}

void
cn_ctl_node_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_node *node)
{
    names(diagnosis, node);
    store_of_node(diagnosis, node);
}

void
cn_ctl_nodes_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->n; i++) {
        const struct cn_ctl_node *node = &nodes->nodes[i];

        if (node->answered)
            cn_ctl_node_diagnose(diagnosis, node);
        else
            silent(diagnosis, node);
    }
    versions(diagnosis, nodes);
    hot(diagnosis, nodes);
    conflicts(diagnosis, nodes);
    store(diagnosis, &nodes->store);
}

/* Prints the diagnosis of one node, unless it is empty. Returns the number of problems. */
static unsigned
one_node(const struct cn_ctl_node *node, json_t *list, struct cn_buf *out)
{
    struct cn_ctl_diagnosis *diagnosis = cn_alloc(sizeof(*diagnosis));
    unsigned n_problems;

    cn_ctl_diagnosis_init(diagnosis);
    cn_ctl_diagnose(diagnosis, &node->view, node->management, cn_wall_ms());
    n_problems = diagnosis->n_problems;
    if (list) {
        json_t *value = cn_ctl_diagnosis_value(diagnosis, node->management);

        json_object_set_new(value, "name", json_string(node->name));
        json_array_append_new(list, value);
    } else if (diagnosis->n_findings) {
        cn_buf_printf(out, "--- node %s\n\n", node->name);
        cn_ctl_diagnosis_show(diagnosis, &node->view, node->management, out);
        cn_buf_puts(out, "\n");
    }
    cn_ctl_diagnosis_fini(diagnosis);
    cn_free(diagnosis);
    return n_problems;
}

unsigned
cn_ctl_nodes_doctor(const struct cn_ctl_nodes *nodes, bool json, struct cn_buf *out)
{
    struct cn_ctl_diagnosis *diagnosis = cn_alloc(sizeof(*diagnosis));
    json_t *list = json ? json_array() : NULL, *value;
    unsigned n_problems, n_answered = 0;

    cn_ctl_diagnosis_init(diagnosis);
    cn_ctl_nodes_diagnose(diagnosis, nodes);
    n_problems = diagnosis->n_problems;
    for (unsigned i = 0; i < nodes->n; i++) {
        n_answered += nodes->nodes[i].answered;
        if (nodes->nodes[i].answered)
            n_problems += one_node(&nodes->nodes[i], list, out);
    }
    if (json) {
        value = cn_ctl_diagnosis_value(diagnosis, "all nodes");
        json_object_set_new(value, "ok", json_boolean(n_problems == 0));
        json_object_set_new(value, "problems", json_integer(n_problems));
        json_object_set_new(value, "nodes", list);
        cn_ctl_json_print(value, false, out);
    } else {
        cn_buf_puts(out, "--- all nodes\n\n");
        cn_ctl_diagnosis_show(diagnosis, NULL, "", out);
        cn_buf_printf(out, "%u of %u nodes answered; %u problem%s in all\n", n_answered, nodes->n,
                      n_problems, n_problems == 1 ? "" : "s");
    }
    cn_ctl_diagnosis_fini(diagnosis);
    cn_free(diagnosis);
    return n_problems;
}
