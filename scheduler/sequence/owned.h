/* scheduler/sequence/owned.h - sequences that belong to a named key: how many the key has open, how
 * many bytes of state they hold, and whether it may open another one. On the queue's loop.
 *
 * An answer says how many bytes its step has stored, and whether it has opened or ended the
 * sequence. So the numbers follow the answers, at a constant cost. They begin with what the store
 * has: the queue lists the open sequences when its first worker is there, and counts them. It does
 * so again from time to time, because some changes are not seen here: records that expire on the
 * disk, steps of other nodes in a shared store, and what was lost with a worker. */
#ifndef CN_SCHEDULER_SEQUENCE_OWNED_H
#define CN_SCHEDULER_SEQUENCE_OWNED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/time/timer_wheel.h"
#include "proto/message.h"
#include "scheduler/queue/model_queue.h"

struct cn_account;
struct cn_accounts;
struct cn_job;
struct cn_owned_count;
struct cn_sequence;

/* What is known of a sequence with an owner; it lies behind the sequence's id. */
struct cn_owned {
    struct cn_owned_count *count; /* of the owner in this queue */
    uint64_t bytes;               /* of its state, if `counted` */
    bool counted;                 /* it is open, and among the owner's sequences */
    bool reserved;                /* the owner has a place for it, as a step may open it */
};

/* Returns the size of a sequence's memory: `bytes`, and behind them a struct cn_owned. */
size_t cn_owned_room(size_t bytes);
/* Sets up what lies behind the id. `account` is the owner's. */
void cn_owned_begin(struct cn_sequence *sequence, struct cn_account *account);
/* The sequence is forgotten here, and lives on in the store if it is counted. */
void cn_owned_forget(struct cn_sequence *sequence);

/* May the step be done, and open its sequence if that is not open? `sequence` is NULL if the queue
 * does not know it. `*reserved`: a place for it was taken. CN_E_KEY_LIMIT. A key that may open no
 * more sequences may still continue one that is only in the store: then the row must find it. */
int cn_owned_admit(const struct cn_sequence *sequence, struct cn_job *job, bool *reserved,
                   struct cn_error *err);
void cn_owned_set_reserved(struct cn_sequence *sequence);
/* Updates the numbers from an answer; call it before the sequence itself is updated. `gone`: the
 * answer says that the sequence does not live any more. `ended`: its step has ended it. */
void cn_owned_learn(struct cn_sequence *sequence, const struct cn_answer *answer, bool gone,
                    bool ended);
/* A worker has written its record, with a state of this many bytes. */
void cn_owned_written(struct cn_sequence *sequence, uint64_t bytes);
/* It is closed, or lives in another version now. */
void cn_owned_gone(struct cn_sequence *sequence);

/* What a queue has for its owners. */
struct cn_owned_queue {
    struct cn_accounts *accounts; /* NULL: sequences have no owners, and nothing else is set */
    struct cn_table *counts;      /* struct cn_owned_count by account */
    /* The count of the store. */
    struct cn_timer timer; /* when the next page or the next count is due */
    struct cn_sequence_query order;
    bool asked;                 /* the order is under way */
    bool counting;              /* the pages so far are in `seen`; the ids up to `at` are listed */
    bool doubted;               /* something has happened meanwhile that needs another count */
    uint64_t begun_ms, rest_ms; /* rest_ms: no other count begins before */
    size_t at_len;
    char at[CN_SEQUENCE_ID_MAX];
};

/* The queue counts for these accounts; call it before the first job. */
void cn_owned_open(struct cn_model_queue *queue, struct cn_accounts *accounts);
/* A worker is there, so that the store can be counted. */
void cn_owned_worker_came(struct cn_model_queue *queue);
/* Takes back what the queue has counted. */
void cn_owned_close(struct cn_model_queue *queue);
/* The numbers may be wrong now: count the store again soon. */
void cn_owned_recount(struct cn_model_queue *queue);

#endif
