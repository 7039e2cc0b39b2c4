/* scheduler/sequence/owned_priv.h - what owned.c and owned_count.c share. On the queue's loop. */
#ifndef CN_SCHEDULER_SEQUENCE_OWNED_PRIV_H
#define CN_SCHEDULER_SEQUENCE_OWNED_PRIV_H

#include <stdint.h>

#include "scheduler/sequence/owned.h"

/* A count is repeated after a minute, or after 20 times the time that the last one took if that is
 * longer. If the numbers may be wrong, it is repeated earlier, but never at once, since clients can
 * cause that. */
#define CN_OWNED_SOON_MS 2000

/* The numbers of one owner in one queue. */
struct cn_owned_count {
    struct cn_account *account; /* the key in the table */
    int64_t sequences, bytes;
    int64_t seen, seen_bytes; /* what the running count has found */
};

/* Finds or makes the numbers of an owner in a queue. The queue owns them. */
struct cn_owned_count *cn_owned_count_of(struct cn_model_queue *queue, struct cn_account *account);

/* The store is counted, or the count goes on, after this time. */
void cn_owned_ask_at(struct cn_model_queue *queue, uint64_t in_ms);

#endif
