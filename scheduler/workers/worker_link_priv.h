/* scheduler/workers/worker_link_priv.h - a worker link as the model queue sees it: its lists and
 * its output buffer.
 */
#ifndef CN_SCHEDULER_WORKERS_WORKER_LINK_PRIV_H
#define CN_SCHEDULER_WORKERS_WORKER_LINK_PRIV_H

#include <stdbool.h>

#include "core/containers/list.h"
#include "core/memory/borrowed_output.h"
#include "core/memory/buf.h"
#include "proto/query.h"
#include "scheduler/queue/job.h"
#include "scheduler/workers/worker_link.h"

struct cn_worker_link {
    uint32_t magic;
    uint32_t index;
    struct cn_loop *loop;
    const struct cn_worker_link_ops *ops;
    void *owner;

    /* worker_link.c */
    struct cn_watch watch;
    struct cn_deferred turn_end; /* flushes the output and calls on_lost */
    int fd;
    uint64_t max_frame_bytes;
    struct cn_buf in, out;
    /* large parts of the rows in `out`, which are sent from the jobs' memory */
    struct cn_borrowed_output borrowed;
    size_t out_sent;      /* bytes of `out` that the socket took */
    bool waits_for_space; /* EPOLLOUT is watched */
    bool loaded;          /* LOADED came */
    uint32_t n_forks;     /* FORK frames that were not answered by FORKED yet */
    bool used;            /* was attached to a queue at some time */
    bool write_failed;    /* the worker's last answers are still read, then the link is lost */
    bool lost, lost_told;
    bool destroyed; /* freed when `depth` is 0 again */
    unsigned depth; /* number of calls on the stack that still use this memory */
    char why[256];  /* why it was lost */

    /* The members from here on are the model queue's while the link is attached (queue is not
     * NULL). */
    struct cn_model_queue *queue;
    struct cn_list attached;  /* node in queue->links */
    struct cn_list in_flight; /* jobs in the order of sending, except those in `live` */
    struct cn_list live;      /* jobs that stream; the one with the latest piece is last */
    uint32_t n_in_flight;     /* jobs in both lists */
    uint32_t n_live;
    uint32_t n_ready;
    struct cn_list ready;    /* groups at home here whose next job can be sent */
    struct cn_list to_close; /* sequences whose CLOSE is still to be sent */
    /* sequences whose CLOSE was sent and not answered, in the order of sending */
    struct cn_list closing;
    uint32_t n_closing;
    struct cn_list queries; /* struct cn_sequence_query that were sent, in the order of sending */
    uint32_t n_queries;
    uint32_t home_serial; /* 0: no sequence is at home here (retiring) */
    uint16_t home_slot;
    bool retiring;
    bool alone;          /* a suspect is in flight, so nothing else may be sent */
    bool held;           /* idle, and waits for a fuller batch (in this dispatch only) */
    bool was_idle;       /* when this dispatch began */
    uint32_t frame_rows; /* rows of the BATCH frame that is being written; 0: there is none */
    uint32_t taken;      /* rows that it got in this dispatch */
    size_t frame_begun;
    uint64_t frame_borrowed; /* borrowed.bytes when the frame was begun */
    /* with fixed rows: the sequence that has each row; NULL: the row is free */
    struct cn_sequence **slots;
    uint64_t live_sequences, rows, answers;
    struct {
        uint64_t serial; /* number of calls so far */
        uint64_t us[CN_INFER_N_PHASES];
    } call;               /* the worker's last call of its handler, whose answers come now */
    uint64_t progress_ms; /* when the worker last showed that it gets on */
    struct cn_timer overdue;
    bool overdue_told; /* its owner was told that it is overdue, and will end it */
    void (*on_retired)(void *ctx);
    void *retired_ctx;
};

/* The rows in flight that have not begun to stream. */
static inline uint32_t
cn_worker_link_rows(const struct cn_worker_link *link)
{
    return link->n_in_flight - link->n_live;
}

/* Frames for the queue that the link is attached to. If one returns an error, the worker broke the
 * protocol, and the link is lost. */
int cn_queue_on_answer(struct cn_worker_link *link, const struct cn_answer *answer,
                       struct cn_error *err);
void cn_queue_on_report(struct cn_worker_link *link, const struct cn_report *report);
void cn_queue_on_stats(struct cn_model_queue *queue, const struct cn_worker_stats *stats);
int cn_queue_on_closed(struct cn_worker_link *link, const struct cn_closed *closed,
                       struct cn_error *err);
int cn_queue_on_result(struct cn_worker_link *link, const struct cn_query_result *result,
                       struct cn_error *err);

/* Has it answered all that it was sent? */
static inline bool
cn_worker_link_quiet(const struct cn_worker_link *link)
{
    return link->n_in_flight == 0 && link->n_closing == 0 && link->n_queries == 0;
}

/* Can frames still be sent? */
bool cn_worker_link_usable(const struct cn_worker_link *link);
/* Gives the caller the memory into which the link read `body`; free it with cn_free(). NULL: the
 * body is too small for that to be worth it, or other frames share the memory. Call it only while
 * the answer with this body is handled. */
char *cn_worker_link_take_read(struct cn_worker_link *link, struct cn_str body);
/* Writes what `out` holds. Errors are reported at the end of a turn, never from inside this
 * call. */
void cn_worker_link_flush(struct cn_worker_link *link);
/* Lets cn_worker_link_flush() run once at the end of the turn. */
void cn_worker_link_flush_later(struct cn_worker_link *link);
/* The jobs leave this link, so their memory may no longer be borrowed. A frame that was begun
 * cannot be completed without that memory, so nothing else is written to this worker either. */
void cn_worker_link_forget_borrowed(struct cn_worker_link *link);

/* Is `a` a better home than `b` for a group without one? The worker with fewer live sequences is,
 * so that states in memory spread evenly; among equals the one with fewer jobs in flight. */
static inline bool
cn_worker_link_better(const struct cn_worker_link *a, const struct cn_worker_link *b)
{
    if (a->live_sequences != b->live_sequences)
        return a->live_sequences < b->live_sequences;
    return a->n_in_flight < b->n_in_flight;
}

#endif
