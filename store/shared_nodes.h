/* store/shared_nodes.h - the list of nodes that use a shared store. It is kept in the store.
 *
 * Each node has an entry, which the store deletes if the node does not renew it in time. An entry's
 * name is NAME#INSTANCE, where INSTANCE is a random number of the node's process, so two nodes that
 * were given the same name have two entries, and both can be seen. Its value is a text that the
 * store does not read. One thread at a time for each link. */
#ifndef CN_STORE_SHARED_NODES_H
#define CN_STORE_SHARED_NODES_H

#include "store/shared_link.h"

#define CN_SHARED_NODES_MAX 4096   /* a list ends here */
#define CN_SHARED_NAMESAKES_MAX 16 /* entries of the same name that are looked at */

/* Called for each entry with its name, NAME#INSTANCE, and its value. */
typedef void (*cn_shared_node_fn)(void *ctx, struct cn_str entry, struct cn_str value);

struct cn_shared_renewal {
    const char *name, *instance;
    struct cn_str value;
    uint32_t ttl_ms; /* the store deletes the entry after this time */
    /* What the call finds out: */
    uint64_t round_trip_us;
    uint64_t wall_ms;       /* the time in the middle of the round trip, by this node's clock, */
    uint64_t store_wall_ms; /* and by the store's clock; 0: it does not say */
};

/* Writes this node's entry, and reports the other entries with its name. */
int cn_shared_nodes_renew(struct cn_shared_link *link, struct cn_shared_renewal *renewal,
                          cn_shared_node_fn on_namesake, void *ctx, struct cn_error *err);
/* Removes this node's entry. */
int cn_shared_nodes_leave(struct cn_shared_link *link, const char *name, const char *instance,
                          struct cn_error *err);
/* Reads all entries, in the order of their names. */
int cn_shared_nodes_read(struct cn_shared_link *link, cn_shared_node_fn on_node, void *ctx,
                         struct cn_error *err);

#endif
