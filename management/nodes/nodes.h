/* management/nodes/nodes.h - the nodes that share a store: this one publishes an entry about itself
 * and reads those of the others.
 *
 * A server whose --state-store is a shared store writes an entry with its name and addresses into
 * the store, and renews it three times in --node-ttl. A server that keeps its states in an embedded
 * store has none of this: no thread, no timer, no connection. Loop 0, unless a comment says
 * otherwise. */
#ifndef CN_MANAGEMENT_NODES_NODES_H
#define CN_MANAGEMENT_NODES_NODES_H

#include <jansson.h>
#include <stdbool.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_NODE_NAME_MAX 63
#define CN_NODE_URL_MAX 320

struct cn_file_thread;
struct cn_management;
struct cn_nodes;
struct cn_shared_link;

/* Checks the options and makes the list's connection, which is used later. `*out` is NULL if the
 * server has no shared store. CN_E_CONFIG: an option is wrong. CN_E_STATE_STORE: the client library
 * is missing. Before the loops run. */
int cn_nodes_create(struct cn_management *management, struct cn_nodes **out, struct cn_error *err);
/* Takes this node off the list, and frees everything. After the loops have ended. NULL is allowed.
 */
void cn_nodes_destroy(struct cn_nodes *nodes);

/* Puts this node on the list. The addresses are those on which it listens, as cn_address_parse
 * reads them; the options decide what the others see. NULL is allowed for `nodes`. */
void cn_nodes_begin(struct cn_nodes *nodes, const char *inference, const char *management,
                    const char *metrics);
/* Renews the entry now, because the state of the server has changed. NULL is allowed. */
void cn_nodes_changed(struct cn_nodes *nodes);

/* Answers with the JSON of GET /nodes, or, if `value` is NULL, with an error. */
typedef void (*cn_nodes_done_fn)(void *ctx, json_t *value, const struct cn_error *err);
/* Reads the list from the store, unless it was read within the last second. `nodes` may be NULL. */
void cn_nodes_list(struct cn_nodes *nodes, cn_nodes_done_fn done, void *ctx);

/* Returns this node's name. NULL: the server has no shared store. Any thread. */
const char *cn_nodes_own_name(const struct cn_nodes *nodes);
/* Finds the advertised inference address of a node, from the list as it was read last: that is a
 * few seconds ago, and longer if there are many nodes. Returns false if the node is not known, is
 * draining, or if two nodes have this name. Any thread. */
bool cn_nodes_find_url(struct cn_nodes *nodes, struct cn_str name, char out[CN_NODE_URL_MAX]);

/* Returns true if another node is the one to which the sequence's steps should go, and finds its
 * advertised inference address. Every node that has the same list gives the same answer: each node
 * and the sequence have a score, and the highest one counts, so a node that joins or leaves moves
 * only its own share of the sequences. Nodes that drain do not count. `nodes` may be NULL. Any
 * thread. */
bool cn_nodes_home(struct cn_nodes *nodes, struct cn_str sequence, char out[CN_NODE_URL_MAX]);

/* The thread and the connection to the store. Tasks of this thread may use the connection, one
 * after the other. */
struct cn_file_thread *cn_nodes_thread(struct cn_nodes *nodes);
struct cn_shared_link *cn_nodes_link(struct cn_nodes *nodes);

#endif
