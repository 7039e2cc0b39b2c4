/* store/link/replica_count.h - how many replicas must confirm a step with state.replicas: all, if
 * Sentinels watch the primary. The link's thread.
 *
 * The number is such that WAIT with it means: every replica that the Sentinels could make the
 * primary has the step. */
#ifndef CN_STORE_LINK_REPLICA_COUNT_H
#define CN_STORE_LINK_REPLICA_COUNT_H

#include "store/link/replica_set.h"
#include "store/link/valkey_wire.h"

/* What the Sentinels say about the replicas. */
struct cn_replica_views {
    uint32_t answered, sentinels;  /* how many Sentinels have answered, and how many there are */
    struct cn_replica_set known;   /* all replicas that any of them lists */
    struct cn_replica_set counted; /* those that any of them could make the primary */
    struct cn_replica_set runs;    /* the same by their run ids: one may have several addresses */
    bool primary_is_down;          /* the Sentinel that answers takes the primary for down */
    bool differ;                   /* one of them does not count a replica that it lists */
};

struct cn_replica_count {
    const struct cn_shared_options *options; /* the hosts are Sentinels; borrowed */
    struct cn_valkey_wire wire;              /* to the Sentinel that is asked */
    uint32_t wanted;                         /* the number; 0: it was never counted */
    bool had_majority;                       /* a majority of the Sentinels has answered once */
    bool settled;                            /* all that have answered count the same replicas */
    struct cn_replica_set seen;              /* the replicas that were looked at */
    uint64_t next_us; /* when to look again, also if no Sentinel has sent a message */
    uint64_t silent_until_us[CN_STATE_STORE_HOSTS_MAX]; /* Sentinels that did not answer lately */
};

/* `options` must outlive it. */
void cn_replica_count_init(struct cn_replica_count *count, const struct cn_shared_options *options,
                           const struct cn_hiredis *lib);
void cn_replica_count_fini(struct cn_replica_count *count);

/* Asks all Sentinels, for a fraction of a second at most, and sets `wanted` and `next_us`.
 * `confirming` are the replicas that have confirmed something to the primary in the last seconds.
 */
void cn_replica_count_renew(struct cn_replica_count *count, const struct cn_replica_set *confirming,
                            uint64_t deadline_us);

/* Does the number hold on, now that these replicas confirm? Then it need not be counted again. */
bool cn_replica_count_holds(struct cn_replica_count *count,
                            const struct cn_replica_set *confirming);

/* Take the replies of one Sentinel to SENTINEL MASTER and SENTINEL REPLICAS. The first one returns
 * whether the Sentinel knows the primary; if not, the second reply is not to be taken. */
bool cn_replica_views_take_primary(struct cn_replica_views *views, const redisReply *reply);
void cn_replica_views_take_replicas(struct cn_replica_views *views, const redisReply *reply);
/* The number, which was `before` until now, and at least 1. Sets `settled` if only a message of a
 * Sentinel can change it. */
uint32_t cn_replica_views_wanted(const struct cn_replica_views *views,
                                 const struct cn_replica_set *confirming, uint32_t before,
                                 bool *settled);

#endif
