/* management/cluster/cluster_priv.h - what the files of management/cluster share. */
#ifndef CN_MANAGEMENT_CLUSTER_CLUSTER_PRIV_H
#define CN_MANAGEMENT_CLUSTER_CLUSTER_PRIV_H

#include "management/cluster/cluster.h"
#include "management/cluster/wanted.h"
#include "management/management_priv.h"
#include "store/shared_wanted.h"

#define CN_CLUSTER_NODE_MAX 96

struct cn_cluster {
    struct cn_management *management;
    struct cn_file_thread *thread; /* one thread, which alone uses the next group */
    struct {
        struct cn_shared_link *link;
        struct cn_buf text;              /* the set, as it was seen or written last ... */
        char token[CN_WANTED_TOKEN_MAX]; /* ... and its token */
    } on_thread;

    /* Loop 0. */
    char node[CN_CLUSTER_NODE_MAX]; /* NAME#INSTANCE; does not change */
    struct cn_wanted wanted;
    char token[CN_WANTED_TOKEN_MAX]; /* of that set; "": none was read yet */
    struct cn_error store_err;       /* why the last look failed; code 0: it did not */
    struct cn_timer timer;
    struct cn_list actions;  /* struct action: registrations and closings that are under way */
    struct cn_list troubles; /* struct trouble: what this node could not do */
    unsigned n_actions, n_changes;
    bool starting, stopped, converged;
    void (*seed)(struct cn_management *management);
    uint64_t reported_ms; /* when the report was sent last; 0: it has changed since */
};

/* The thread: writes the node's report unless `node` is NULL, and reads the set. If the store has
 * lost changes that this node knows, the set with these changes is written back. `known` is the
 * token of the set that the caller has, or ""; that set is not read again. *wanted is the
 * caller's. */
int cn_cluster_read(struct cn_cluster *cluster, const char *known, const char *node,
                    struct cn_str report, struct cn_wanted *wanted, bool *is_new,
                    char token[CN_WANTED_TOKEN_MAX], struct cn_error *err);

/* The thread: keeps the text and the token of the present set. */
void cn_cluster_keep(struct cn_cluster *cluster, struct cn_str text, const char *token);

/* Loop 0: another set is the wanted one. `wanted` is taken. */
void cn_cluster_take(struct cn_cluster *cluster, struct cn_wanted *wanted, const char *token);

/* reconcile.c */
/* Begins whatever makes this node's models more like the wanted ones. */
void cn_cluster_reconcile(struct cn_cluster *cluster);
/* Appends this node's report, a JSON object. */
void cn_cluster_report(const struct cn_cluster *cluster, struct cn_buf *out);
void cn_cluster_forget_troubles(struct cn_cluster *cluster);
/* The workers of a version of the set, within what a pool takes. */
uint32_t cn_cluster_workers(int64_t wanted);

#endif
