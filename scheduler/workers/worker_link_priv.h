/* scheduler/workers/worker_link_priv.h - what the model queue sees of a link: its lists and its out
 * buffer. */
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
    struct cn_deferred turn_end; /* writes, and tells on_lost */
    int fd;
    uint64_t max_frame_bytes;
    struct cn_buf in, out;
    struct cn_borrowed_output
        borrowed;         /* large parts of rows in `out`, sent from where their jobs have them */
    size_t out_sent;      /* bytes of `out` that the socket took */
    bool waits_for_space; /* EPOLLOUT is watched */
    bool loaded;          /* LOADED came */
    uint32_t n_forks;     /* FORK frames without their FORKED */
    bool used;            /* was attached to a queue at some time */
    bool write_failed;    /* what the worker had answered is still read, then the link is lost */
    bool lost, lost_told;
    bool destroyed; /* freed when `depth` is 0 again */
    unsigned depth; /* calls that still need the memory */
    char why[256];  /* it was lost */

    /* The model queue's, while attached (queue is not NULL). */
    struct cn_model_queue *queue;
    struct cn_list attached;  /* node in queue->links */
    struct cn_list in_flight; /* jobs in the order they were sent, but for those in `live` */
    struct cn_list live;      /* jobs that stream; the one that was heard of last at the back */
    uint32_t n_in_flight;     /* both */
    uint32_t n_live;
    uint32_t n_ready;
    struct cn_list ready;    /* groups at home here whose next job can go */
    struct cn_list to_close; /* sequences whose CLOSE is still to be sent */
    struct cn_list closing;  /* sent, CLOSED not here yet; in the order they were sent */
    uint32_t n_closing;
    struct cn_list queries; /* struct cn_sequence_query, sent, in the order they were sent */
    uint32_t n_queries;
    uint32_t home_serial; /* 0: nobody's home (retiring) */
    uint16_t home_slot;
    bool retiring;
    bool alone;          /* a suspect is in flight: nothing else may be sent */
    bool held;           /* idle, and waits for a fuller batch (this dispatch only) */
    bool was_idle;       /* when this dispatch began */
    uint32_t frame_rows; /* of the BATCH frame that is being written; 0: none is */
    uint32_t taken;      /* rows in this dispatch */
    size_t frame_begun;
    uint64_t frame_borrowed;    /* lents.bytes when it was begun */
    struct cn_sequence **slots; /* with fixed rows: who has which; NULL: nobody */
    uint64_t live_sequences, rows, answers;
    struct {
        uint64_t serial; /* how many there were */
        uint64_t us[CN_INFER_N_PHASES];
    } call;               /* the worker's last one of its handler, whose answers come now */
    uint64_t progress_ms; /* last time the worker showed that it gets on */
    struct cn_timer overdue;
    bool overdue_told; /* its owner is about to end it */
    void (*on_retired)(void *ctx);
    void *retired_ctx;
};

/* Rows that have not begun to stream. */
static inline uint32_t
cn_worker_link_rows(const struct cn_worker_link *link)
{
    return link->n_in_flight - link->n_live;
}

/* Frames for the queue that the link is attached to. An error is the
 * worker's fault: the link is lost. */
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
/* The memory into which the link read `body`, as the caller's: cn_free() it. NULL: the body is too
 * small for that to be worth it, or other frames share the memory. Only while the answer with it is
 * given out. */
char *cn_worker_link_take_read(struct cn_worker_link *link, struct cn_str body);
/* Writes what `out` holds; errors come out at the end of a turn, never from inside. */
void cn_worker_link_flush(struct cn_worker_link *link);
/* The same, once, at the end of the turn. */
void cn_worker_link_flush_later(struct cn_worker_link *link);
/* Its jobs leave it: what they lent and was not sent yet is theirs again. Without it no frame that
 * was begun can be ended, so nothing else is written either. */
void cn_worker_link_forget_borrowed(struct cn_worker_link *link);

/* Is `a` the better place for a group without a home? The one with fewest live sequences, so that
 * warm states spread evenly; of equals the one with least to do. */
static inline bool
cn_worker_link_better(const struct cn_worker_link *a, const struct cn_worker_link *b)
{
    if (a->live_sequences != b->live_sequences)
        return a->live_sequences < b->live_sequences;
    return a->n_in_flight < b->n_in_flight;
}

#endif
