/* management/cluster/cluster.h - all nodes of a shared store serve the same models
 * (--cluster-models).
 *
 * The wanted set of models is in the shared store (wanted.h). A registration, scaling, set-default
 * or unregistration on any node changes that set by a conditional write, so the store decides which
 * of two contradicting calls wins. Each node looks at the set twice a second, makes its own models
 * like it, and reports how far it is. While the store is away, a node goes on with what it has, and
 * models cannot be changed. Loop 0.
 *
 * cn_cluster_register() does on all nodes what cn_lifecycle_register() does on one. The same holds
 * for scale, set_default and unregister. On a server without --cluster-models (then
 * `management->cluster` is NULL) they only call the functions of lifecycle.h.
 */
#ifndef CN_MANAGEMENT_CLUSTER_CLUSTER_H
#define CN_MANAGEMENT_CLUSTER_CLUSTER_H

#include <jansson.h>

#include "management/models/lifecycle.h"

struct cn_cluster;
struct cn_version;

/* Makes what --cluster-models needs; *out is NULL without that option. Before the loops run.
 * CN_E_CONFIG: another option contradicts it. CN_E_STATE_STORE: the client library is missing. */
int cn_cluster_create(struct cn_management *management, struct cn_cluster **out,
                      struct cn_error *err);
/* Frees it, after the loops have ended. NULL is allowed. */
void cn_cluster_destroy(struct cn_cluster *cluster);
/* Begins to look at the store. The start of the server is over when the set was read once and each
 * of its models was tried. `seed` is called if nobody has written a set yet: it registers the
 * models of the command line, by cn_cluster_register(). */
void cn_cluster_start(struct cn_cluster *cluster, void (*seed)(struct cn_management *management));
/* The server drains: this node takes its report back. NULL is allowed. */
void cn_cluster_stop(struct cn_cluster *cluster);

void cn_cluster_register(struct cn_management *management, const struct cn_register_call *call,
                         cn_lifecycle_done_fn done, void *ctx);
void cn_cluster_scale(struct cn_management *management, const struct cn_scale_call *call,
                      cn_lifecycle_done_fn done, void *ctx);
void cn_cluster_set_default(struct cn_management *management, const struct cn_default_call *call,
                            cn_lifecycle_done_fn done, void *ctx);
void cn_cluster_unregister(struct cn_management *management, const char *name, const char *version,
                           cn_lifecycle_done_fn done, void *ctx);
/* The version's swap deadline has passed: it leaves the set, and every node closes it then. */
void cn_cluster_retired(struct cn_cluster *cluster, const struct cn_version *version);

/* `value` is the callback's: {"node", "generation", "storeError", "models", "nodes"}. */
typedef void (*cn_cluster_done_fn)(void *ctx, json_t *value);
/* Describes the set and the nodes. The reports are read from the store. */
void cn_cluster_describe(struct cn_cluster *cluster, cn_cluster_done_fn done, void *ctx);
/* What concerns one version, taken out of such a description. NULL: the set does not have it. */
json_t *cn_cluster_of_version(const json_t *all, const char *name, const char *version);

#endif
