/* scheduler/sequence/sequence.h - one live sequence: its clocks, its home worker, its job group.
 *
 * Millions of these may be open, so it is one block with the id at its end, and
 * has one timer for both clocks. On the model queue's loop.
 *
 * A sequence that was closed stays in the table, uncounted, until its worker
 * said that the state is gone: jobs that come meanwhile wait in its group. So
 * no step can overtake the CLOSE, whichever worker it goes to.
 */
#ifndef CN_SCHEDULER_SEQUENCE_SEQUENCE_H
#define CN_SCHEDULER_SEQUENCE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "core/time/timer_wheel.h"
#include "proto/frame.h"
#include "scheduler/queue/job_group.h"

struct cn_error;
struct cn_model_queue;
struct cn_worker_link;

struct cn_sequence {
    struct cn_timer timer; /* the nearer of the idle and the total clock */
    struct cn_job_group group;
    struct cn_model_queue *queue;
    uint64_t generation;  /* as answers told; 0: not known, or none */
    uint64_t lifetime_ms; /* when the total clock ends; CN_NEVER */
    /* The home worker is the one that holds this place under this number: nothing needs to be
     * changed in a million sequences when a worker goes. */
    uint32_t home_serial; /* 0: none; with `away`: that of the queue where it lives */
    uint16_t home_slot;
    uint16_t id_len;
    uint16_t streams;     /* steps that are committed and still stream their answers */
    uint8_t closing;      /* enum cn_close_reason; 0: open */
    uint8_t close_after;  /* the same: to be closed when its job was answered */
    bool known : 1;       /* a worker said that it lives, or did a step of it */
    bool reload : 1;      /* the home worker's cached state may be stale */
    bool counted : 1;     /* has one of the maxNumSequence slots */
    bool held : 1;        /* a worker writes its record: no job is sent until that is done */
    bool wants_write : 1; /* an order waits for the job in flight, see stored_sequences.c */
    bool away : 1; /* lives in another version, as last heard (scheduler/swap/version_swap.h) */
    char id[];
};

/* Made, put into the queue's table, with a slot. */
struct cn_sequence *cn_sequence_open(struct cn_model_queue *queue, struct cn_str id);
/* Out of the table and freed. Must be idle. The store is not told. */
void cn_sequence_forget(struct cn_sequence *sequence);
struct cn_str cn_sequence_id(const struct cn_sequence *sequence);
void cn_sequence_take_slot(struct cn_sequence *sequence);
void cn_sequence_give_slot(struct cn_sequence *sequence);

/* A worker has written a record that opened this generation. */
void cn_sequence_begin_generation(struct cn_sequence *sequence, uint64_t generation,
                                  uint64_t opened_wall_ms);

/* NULL when it has none, or it is gone or retiring. */
struct cn_worker_link *cn_sequence_home(const struct cn_sequence *sequence);
/* With slots (policy.h) only while the link has one that is free. */
void cn_sequence_set_home(struct cn_sequence *sequence, struct cn_worker_link *link);
void cn_sequence_leave_home(struct cn_sequence *sequence);

/* The serial of the queue of the version where it lives, as last heard; 0: here, or not known. */
uint32_t cn_sequence_away(const struct cn_sequence *sequence);
void cn_sequence_set_away(struct cn_sequence *sequence, uint32_t serial);

/* What a final answer says of the sequence, and whether its row asked for the end. */
void cn_sequence_learn(struct cn_sequence *sequence, const struct cn_answer *answer,
                       bool asked_end);
/* With slots (policy.h): a step came, or it got its slot, and its idle clock starts anew. `start`:
 * the step opens the sequence. */
void cn_sequence_arrived(struct cn_sequence *sequence, bool start);
/* A job arrived, was answered or went away: puts the group where it belongs, closes what waited for
 * that, sets the clocks or forgets the sequence, which is then freed. */
void cn_sequence_update(struct cn_sequence *sequence);

/* What comes next can't or won't wait for the step in flight to end its stream by itself. */
void cn_sequence_stop_stream(struct cn_sequence *sequence);

/* sequence_close.c: takes the slot away and has a worker delete the state. With no worker there is
 * nobody to tell: the store's own times will say the same. May free an idle sequence. */
void cn_sequence_begin_close(struct cn_sequence *sequence, enum cn_close_reason reason);
/* The total clock has ended: closes now, or after the job or the write in flight. May free the
 * sequence. */
void cn_sequence_outlived(struct cn_sequence *sequence);
/* It is to be deleted: now, or after the job in flight. May free the sequence. */
void cn_sequence_delete_soon(struct cn_sequence *sequence);
/* A step comes too late: the sequence was idle for too long. CN_E_SEQUENCE_EXPIRED. */
int cn_sequence_say_idle(const struct cn_sequence *sequence, struct cn_error *err);
/* Refuses those waiting jobs that belong to the generation that has outlived its time, or was idle
 * for too long. */
void cn_sequence_refuse_waiting(struct cn_sequence *sequence);

#endif
