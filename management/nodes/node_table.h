/* management/nodes/node_table.h - the inference URLs of the nodes, by name, from the list as it was
 * read last.
 *
 * Loop 0 fills the table, and any loop reads it under its lock. A step needs it only when it is
 * redirected to another node, not when it is served here. */
#ifndef CN_MANAGEMENT_NODES_NODE_TABLE_H
#define CN_MANAGEMENT_NODES_NODE_TABLE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

#include "core/text/str.h"
#include "management/nodes/node_entry.h"

struct cn_node_url;

struct cn_node_table {
    pthread_mutex_t lock;
    struct cn_node_url *urls; /* sorted by name */
    size_t n;
};

void cn_node_table_init(struct cn_node_table *table);
void cn_node_table_fini(struct cn_node_table *table);
/* Makes the table anew from the nodes' entries, which must come in the order of NAME#INSTANCE. */
void cn_node_table_fill(struct cn_node_table *table, const json_t *entries);

/* Finds the URL of the node with this name. Returns false if the node is not known, is draining, or
 * if two nodes have this name. Any thread. */
bool cn_node_table_find(struct cn_node_table *table, struct cn_str name, char out[CN_NODE_URL_MAX]);
/* Finds the node to which the sequence's steps should go. Returns true, and its URL, if it is not
 * the node `own`. nodes.h says how the node is chosen. Any thread. */
bool cn_node_table_home(struct cn_node_table *table, const char *own, struct cn_str sequence,
                        char out[CN_NODE_URL_MAX]);

#endif
