/* ctl/nodes/many.h - what several nodes report about themselves at one moment, and the store that
 * they share. */
#ifndef CN_CTL_NODES_MANY_H
#define CN_CTL_NODES_MANY_H

#include <jansson.h>

#include "ctl/cli.h"
#include "ctl/read_models.h"
#include "doctor/doctor.h"

#define CN_CTL_NODES_MAX 4096
#define CN_CTL_REPLICAS_MAX 16

/* One node. The texts lie in its view's arena, except for those that the list has. */
struct cn_ctl_node {
    const char *management;      /* where it was asked */
    const char *expected;        /* the instance that the list says is there; NULL: it says none */
    const char *name, *instance; /* `name` is the address if the node does not say */
    const char *state, *version, *metrics; /* "" if it does not say */
    bool answered, has_metrics;
    struct cn_error err;    /* why there is no answer */
    bool duplicate;         /* another node has its name */
    const char *list_error; /* why it cannot read the list from the store; NULL: it can */
    uint64_t round_trip_us; /* to the store; 0: unknown */
    bool knows_clock;
    int64_t ahead_ms; /* how far its clock is ahead of the store's */
    struct cn_ctl_view view;
};

struct cn_ctl_store_facts {
    const char *url, *version; /* NULL: nothing is known of the store */
    uint64_t used_bytes, max_bytes, commands_per_s;
    bool append_only;
    const char *append_fsync; /* "": not known */
    unsigned n_replicas;
    struct {
        const char *address;
        bool online;
        uint64_t lag_bytes, lag_s;
    } replicas[CN_CTL_REPLICAS_MAX];
};

struct cn_ctl_nodes {
    struct cn_arena arena;
    struct cn_ctl_node *nodes;
    unsigned n;
    struct cn_ctl_store_facts store;
    uint64_t at_us; /* when it was read, by cn_now_us() */
};

/* Reads all nodes: those of options->nodes, or else those on the list of the server. A node that
 * does not answer is an entry without a view, not an error. CN_E_CONFIG: options->nodes is not a
 * list of addresses. CN_E_NOT_FOUND: the server shares no store with other nodes. Free it with
 * cn_ctl_nodes_free, also after an error. */
struct cn_ctl_nodes *cn_ctl_nodes_read(const struct cn_ctl_options *options, struct cn_error *err);
/* NULL is allowed. */
void cn_ctl_nodes_free(struct cn_ctl_nodes *nodes);
/* Returns NULL if there is no such node. */
const struct cn_ctl_node *cn_ctl_nodes_find(const struct cn_ctl_nodes *nodes,
                                            const struct cn_ctl_node *like);
/* Takes the answer to GET /nodes of this node: what it says about itself, and about the store. */
void cn_ctl_node_take(struct cn_ctl_node *node, struct cn_str answer,
                      struct cn_ctl_store_facts *store);
/* Splits options->nodes, "host:port,host:port" or URLs, into addresses. */
int cn_ctl_nodes_split(struct cn_arena *arena, const char *text, const char ***out, unsigned *n,
                       struct cn_error *err);

/* many_show.c: all functions append to `out`. */
void cn_ctl_nodes_status(const struct cn_ctl_nodes *nodes, bool json, struct cn_buf *out);
void cn_ctl_nodes_top(const struct cn_ctl_nodes *before, const struct cn_ctl_nodes *now, bool json,
                      struct cn_buf *out);
/* Have all nodes answered, and are they healthy? */
bool cn_ctl_nodes_healthy(const struct cn_ctl_nodes *nodes);

/* many_doctor.c: finds what is wrong between the nodes, and with their store. */
void cn_ctl_nodes_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_nodes *nodes);
/* Finds what is wrong with one node that has answered, and with its way to the store. */
void cn_ctl_node_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_node *node);
/* Diagnoses the nodes together and each by itself, and prints that. Returns the number of problems.
 */
unsigned cn_ctl_nodes_doctor(const struct cn_ctl_nodes *nodes, bool json, struct cn_buf *out);

#endif
