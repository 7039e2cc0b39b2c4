/* scheduler/sequence/sequence.h - one live sequence: its clocks, its home worker, its job group.
 *
 * Millions of sequences may be open, so a sequence is one block of memory with the id at its end,
 * and one timer serves both of its clocks. All of this is on the model queue's loop.
 *
 * A sequence that was closed stays in the table, uncounted, until its worker has said that the
 * state is gone. Jobs that come meanwhile wait in its group. So no step can overtake the CLOSE,
 * whichever worker it goes to.
 */
#ifndef CN_SCHEDULER_SEQUENCE_SEQUENCE_H
#define CN_SCHEDULER_SEQUENCE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "core/time/timer_wheel.h"
#include "proto/frame.h"
#include "scheduler/queue/job_group.h"

struct cn_account;
struct cn_error;
struct cn_model_queue;
struct cn_worker_link;

struct cn_sequence {
    struct cn_timer timer; /* the nearer of the idle and the total clock */
    struct cn_job_group group;
    struct cn_model_queue *queue;
    uint64_t generation;  /* from the last answer; 0: not known, or none */
    uint64_t lifetime_ms; /* when the total clock ends; CN_NEVER */
    /* The home worker is the one that holds place `home_slot` of the queue under the number
     * `home_serial`. When a worker goes, only its place changes, not a million sequences. */
    uint32_t home_serial; /* 0: none. With `away`: the serial of the queue where it lives */
    uint16_t home_slot;
    uint16_t id_len;
    uint16_t streams;     /* number of steps that are committed and still stream their answers */
    uint8_t closing;      /* enum cn_close_reason; 0: open */
    uint8_t close_after;  /* enum cn_close_reason: to be closed when its job was answered; 0: no */
    bool known : 1;       /* a worker said that it lives, or ran a step of it */
    bool reload : 1;      /* the home worker's cached state may be stale */
    bool counted : 1;     /* it has one of the maxNumSequence places */
    bool held : 1;        /* a worker writes its record: no job is sent until that is done */
    bool wants_write : 1; /* an order waits for the job in flight, see stored_sequences.c */
    bool away : 1;  /* lives in another version, as last heard (scheduler/swap/version_swap.h) */
    bool owned : 1; /* a struct cn_owned lies behind the id */
    char id[];
};

/* What a step reads of a sequence: all of it, and of the id as much as most have. */
#define CN_SEQUENCE_BYTES (sizeof(struct cn_sequence) + 24)

/* Makes a sequence, puts it into the queue's table and counts it. The queue owns it. `account`: its
 * owner's; NULL: the queue finds it by the id. */
struct cn_sequence *cn_sequence_open(struct cn_model_queue *queue, struct cn_str id,
                                     struct cn_account *account);
/* Takes an idle sequence out of the table and frees it. The store is not told. */
void cn_sequence_forget(struct cn_sequence *sequence);
struct cn_str cn_sequence_id(const struct cn_sequence *sequence);
/* Is there room for one more sequence? Else CN_E_TOO_MANY_SEQUENCES. */
int cn_sequence_check_room(const struct cn_model_queue *queue, struct cn_error *err);
void cn_sequence_take_place(struct cn_sequence *sequence);
void cn_sequence_give_place(struct cn_sequence *sequence);

/* A worker has written a record that begins this generation. */
void cn_sequence_begin_generation(struct cn_sequence *sequence, uint64_t generation,
                                  uint64_t opened_wall_ms);

/* Its home worker; NULL if it has none, or if that worker is gone or retires. */
struct cn_worker_link *cn_sequence_home(const struct cn_sequence *sequence);
/* Makes the link its home. With slots (policy.h) nothing happens unless the link has a free one. */
void cn_sequence_set_home(struct cn_sequence *sequence, struct cn_worker_link *link);
void cn_sequence_leave_home(struct cn_sequence *sequence);

/* It lives in another version, or in none: the next step is sent like that of an unknown one. */
void cn_sequence_left(struct cn_sequence *sequence);
/* The serial of the queue of the version where it lives, as far as is known; 0: here, or not
 * known. */
uint32_t cn_sequence_away(const struct cn_sequence *sequence);
void cn_sequence_set_away(struct cn_sequence *sequence, uint32_t serial);

/* Updates the sequence from a final answer. `asked_end`: the row asked for the sequence's end. */
void cn_sequence_learn(struct cn_sequence *sequence, const struct cn_answer *answer,
                       bool asked_end);
/* Starts the idle clock anew, in models with slots only (policy.h): a step came, or the sequence
 * got its slot. `start`: the step opens the sequence. */
void cn_sequence_arrived(struct cn_sequence *sequence, bool start);
/* Call it after a job arrived, was answered or went away. It puts the group into the list where it
 * belongs, closes the sequence if that waited for the job, sets the clocks, or forgets the
 * sequence, which is then freed. */
void cn_sequence_update(struct cn_sequence *sequence);

/* Asks the step in flight to end its stream, because what comes next will not wait for that. */
void cn_sequence_stop_stream(struct cn_sequence *sequence);

/* sequence_close.c: takes the place away and lets a worker delete the state. Without any worker
 * nobody is told: the record's own times close the sequence in the store. May free an idle
 * sequence. */
void cn_sequence_begin_close(struct cn_sequence *sequence, enum cn_close_reason reason);
/* The total clock has ended: closes the sequence now, or after the job or the write in flight. May
 * free the sequence. */
void cn_sequence_outlived(struct cn_sequence *sequence);
/* Deletes the sequence now, or after the job in flight. May free the sequence. */
void cn_sequence_delete_soon(struct cn_sequence *sequence);
/* Sets the error of a step that came after the sequence was idle for too long:
 * CN_E_SEQUENCE_EXPIRED. */
int cn_sequence_say_idle(const struct cn_sequence *sequence, struct cn_error *err);
/* Refuses those waiting jobs that belong to the generation that has outlived its time or was idle
 * for too long. */
void cn_sequence_refuse_waiting(struct cn_sequence *sequence);

#endif
