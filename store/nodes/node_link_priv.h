/* store/nodes/node_link_priv.h - shared by the files behind store/shared_*.h only. */
#ifndef CN_STORE_NODES_NODE_LINK_PRIV_H
#define CN_STORE_NODES_NODE_LINK_PRIV_H

#include "store/link/link.h"
#include "store/shared_link.h"

/* The places of the link. Those behind them are spread over all slots of a cluster, so that INFO
 * reaches every primary. */
enum { CN_PLACE_NODES, CN_PLACE_MODELS };

struct cn_shared_link {
    struct cn_valkey_link link;
};

/* Connects, if there is no connection. Sets the call's deadline. */
int cn_shared_link_begin(struct cn_shared_link *shared, uint64_t *deadline_us,
                         struct cn_error *err);
/* Turns an error reply into an error, and drops the connection, because another server may accept
 * the command. */
int cn_shared_link_fail(struct cn_shared_link *shared, struct cn_str words, struct cn_error *err);

#endif
