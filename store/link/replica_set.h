/* store/link/replica_set.h - a few replicas, each known by the address that a server or a Sentinel
 * gives for it. */
#ifndef CN_STORE_LINK_REPLICA_SET_H
#define CN_STORE_LINK_REPLICA_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

#define CN_REPLICAS_SEEN 32 /* how many replicas of a primary are looked at */

struct cn_replica_set {
    uint32_t n;
    uint64_t names[CN_REPLICAS_SEEN]; /* a hash of each address */
};

/* Adds a replica, unless the set has it. One that finds no room is left out: its primary has more
 * replicas than state.replicas can name. */
void cn_replica_set_add(struct cn_replica_set *set, struct cn_str host, struct cn_str port);
/* Adds those of another set. */
void cn_replica_set_join(struct cn_replica_set *set, const struct cn_replica_set *others);
/* How many of `set` are in `others`? */
uint32_t cn_replica_set_common(const struct cn_replica_set *set,
                               const struct cn_replica_set *others);

#endif
