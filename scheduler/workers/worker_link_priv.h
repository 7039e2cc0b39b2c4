/* scheduler/workers/worker_link_priv.h - a worker link as the model queue sees it: its connection
 * (worker_connection.c, worker_frames.c) and its credit (worker_credit.c).
 */
#ifndef CN_SCHEDULER_WORKERS_WORKER_LINK_PRIV_H
#define CN_SCHEDULER_WORKERS_WORKER_LINK_PRIV_H

#include <stdbool.h>

#include "core/containers/list.h"
#include "core/containers/phase.h"
#include "core/memory/borrowed_output.h"
#include "core/memory/buf.h"
#include "proto/query.h"
#include "scheduler/queue/job.h"
#include "scheduler/workers/worker_link.h"

enum cn_worker_link_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_LINK_##name,
#include "scheduler/workers/worker_link_phases.def"
#undef CN_PHASE
    CN_LINK_N_PHASES,
    CN_LINK_ = CN_PHASE_NONE,
};

enum cn_worker_credit_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_CREDIT_##name,
#include "scheduler/workers/worker_credit_phases.def"
#undef CN_PHASE
    CN_CREDIT_N_PHASES,
    CN_CREDIT_ = CN_PHASE_NONE,
};

/* Frames for the queue that the link is attached to. If one returns an error, the worker broke the
 * protocol, and the link is lost. The structs are borrowed. */
struct cn_worker_frame_ops {
    int (*on_answer)(struct cn_worker_link *link, const struct cn_answer *answer,
                     struct cn_error *err);
    int (*on_closed)(struct cn_worker_link *link, const struct cn_closed *closed,
                     struct cn_error *err);
    int (*on_result)(struct cn_worker_link *link, const struct cn_query_result *result,
                     struct cn_error *err);
    void (*on_report)(struct cn_worker_link *link, const struct cn_report *report);
    void (*on_stats)(struct cn_worker_link *link, const struct cn_worker_stats *stats);
};

/* What the model's config says about its workers. */
struct cn_worker_terms {
    uint32_t batch_rows;          /* batchSize */
    uint32_t streams;             /* stream.max */
    uint64_t response_timeout_ms; /* responseTimeout */
    uint64_t body_memory_bytes;   /* bodyMemoryBytes */
};

struct cn_worker_link {
    uint32_t magic;
    uint32_t index;
    struct cn_loop *loop;
    const struct cn_worker_link_ops *ops;
    void *owner;

    /* The connection: worker_connection.c and worker_frames.c. */
    uint8_t phase; /* worker_link_phases.def, moved by cn_worker_link_to() only */
    struct cn_watch watch;
    struct cn_deferred turn_end; /* flushes the output and calls on_lost */
    int fd;
    uint64_t max_frame_bytes;
    struct cn_buf in, out;
    /* large parts of the rows in `out`, which are sent from the jobs' memory */
    struct cn_borrowed_output borrowed;
    /* Body memory: worker_bodies.c. */
    struct cn_body_memory *body_memory; /* NULL: there is none (yet) */
    bool bodies_are_large;              /* a large answer came through the socket */
    bool body_memory_tried;             /* made, or it could not be made */
    char *copied_body;    /* of the answer that is handled: its copy out of the body memory */
    size_t out_sent;      /* bytes of `out` that the socket took */
    bool waits_for_space; /* EPOLLOUT is watched; a fact about the watch, true or not while OPEN */
    /* LOADED came. A fact about the order of frames: a worker that no longer reads (DEAF) may still
     * say that it could not load the model. */
    bool loaded;
    uint32_t n_forks; /* FORK frames that were not answered by FORKED yet */
    unsigned depth;   /* number of calls on the stack that still use this memory */
    char why[256];    /* why it was lost */

    /* Credit: worker_credit.c, and the model queue's files while the link is attached (queue is not
     * NULL). */
    uint8_t credit_phase; /* worker_credit_phases.def, moved by cn_worker_link_credit_to() only */
    struct cn_model_queue *queue;
    const struct cn_worker_frame_ops *frame_ops;
    struct cn_worker_terms terms;
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
    /* These three are notes of one dispatch for itself, not phases: the next one sets them anew. */
    bool held;           /* idle, and waits for a fuller batch */
    bool was_idle;       /* when the dispatch began */
    uint32_t taken;      /* rows that it got in this dispatch */
    uint32_t frame_rows; /* rows of the BATCH frame that is being written; 0: there is none */
    size_t frame_begun;
    uint64_t frame_borrowed; /* borrowed.bytes when the frame was begun */
    /* with fixed rows: the sequence that has each row; NULL: the row is free */
    struct cn_sequence **slots;
    uint64_t live_sequences, rows, answers;
    struct {
        uint64_t serial; /* number of calls so far */
        uint64_t at_us;  /* when its report came */
        uint64_t us[CN_INFER_N_PHASES];
    } call;               /* the worker's last call of its handler, whose answers come now */
    uint64_t progress_ms; /* when the worker last showed that it gets on */
    struct cn_timer overdue;
    void (*on_retired)(void *ctx);
    void *retired_ctx;
};

/* Returns the number of rows in flight that have not begun to stream. */
static inline uint32_t
cn_worker_link_rows(const struct cn_worker_link *link)
{
    return link->n_in_flight - link->n_live;
}

extern const struct cn_phase cn_worker_link_phases[CN_LINK_N_PHASES];
extern const struct cn_phase cn_worker_credit_phases[CN_CREDIT_N_PHASES];
/* Moves the connection, and the credit. A move that is not in the table aborts. */
void cn_worker_link_to(struct cn_worker_link *link, enum cn_worker_link_phase phase);
void cn_worker_link_credit_to(struct cn_worker_link *link, enum cn_worker_credit_phase phase);

/* Has it answered all that it was sent? */
static inline bool
cn_worker_link_quiet(const struct cn_worker_link *link)
{
    return link->n_in_flight == 0 && link->n_closing == 0 && link->n_queries == 0;
}

/* Is something still to be sent? The buffer alone does not tell: the large part with which a frame
 * ends is borrowed, and may be half sent when the buffer is empty. */
static inline bool
cn_worker_link_is_sending(const struct cn_worker_link *link)
{
    return link->out.len > 0 || cn_borrowed_output_pending(&link->borrowed);
}

/* worker_frames.c: hands out a frame that came. An error loses the link. */
int cn_worker_link_give_frame(struct cn_worker_link *link, const struct cn_frame *frame,
                              struct cn_error *err);

/* worker_connection.c */

/* Can frames still be sent? */
bool cn_worker_link_usable(const struct cn_worker_link *link);
/* Gives the caller the memory into which the link has read or copied `body`; free it with
 * cn_free(). NULL: the body is too small for that to be worth it, or other frames are in the same
 * memory. Call it only while the answer with this body is handled. */
char *cn_worker_link_take_read(struct cn_worker_link *link, struct cn_str body);
/* Writes what `out` holds. Errors are reported at the end of a turn, never from inside this
 * call. */
void cn_worker_link_flush(struct cn_worker_link *link);
/* Sends a frame and its `n` descriptors in one message at once. Nothing else may be on its way
 * (cn_worker_link_is_sending), because a message must not come into the middle of a frame. Returns
 * false if the socket does not take it. */
#define CN_LINK_FDS_MAX 2
bool cn_worker_link_send_fds(struct cn_worker_link *link, const struct cn_buf *frame,
                             const int *fds, unsigned n);
/* Lets cn_worker_link_flush() run once at the end of the turn. */
void cn_worker_link_flush_later(struct cn_worker_link *link);
/* The jobs leave this link, so their memory may no longer be borrowed. A frame that was begun
 * cannot be completed without that memory, so nothing else is written to this worker either. */
void cn_worker_link_forget_borrowed(struct cn_worker_link *link);

/* worker_bodies.c */

/* Before a BATCH frame is begun: makes the body memory and sends its descriptor to the worker, if
 * the row has a large part, or answers are large, and it was not tried before. */
void cn_worker_link_share(struct cn_worker_link *link, const struct cn_row *row);
/* Copies the body of an answer out of the body memory, if it is there: into memory that
 * cn_worker_link_take_read() gives away. Returns 0, CN_E_PROTOCOL or CN_E_OUT_OF_MEMORY. */
int cn_worker_link_copy_body(struct cn_worker_link *link, struct cn_answer *answer,
                             struct cn_error *err);

/* worker_credit.c */

/* The link is attached to a queue whose config says `terms`, and gets credit. */
void cn_worker_link_serve(struct cn_worker_link *link, const struct cn_worker_terms *terms);
/* Something is about to be sent. If the worker has nothing to do, responseTimeout counts from now
 * on. */
void cn_worker_link_begins(struct cn_worker_link *link);
/* Sets the timer of responseTimeout. Call it in each turn in which something was sent. */
void cn_worker_link_watch_progress(struct cn_worker_link *link);

/* How many rows it may get now. */
uint32_t cn_worker_link_credit(const struct cn_worker_link *link);
/* Is it free for a whole batch? */
bool cn_worker_link_is_free(const struct cn_worker_link *link);

/* Writes a row into the BATCH frame of this turn, and begins the frame if there is none. Large
 * parts are borrowed; `unsent` counts those that are not sent yet. */
void cn_worker_link_put_row(struct cn_worker_link *link, const struct cn_row *row,
                            uint32_t *unsent);
/* Writes a row of padding, which no client sent and which has no answer. */
void cn_worker_link_put_pad(struct cn_worker_link *link);
/* Writes a row in a frame of its own. */
void cn_worker_link_put_alone(struct cn_worker_link *link, const struct cn_row *row);
/* Ends the frame of this turn, if one was begun. */
void cn_worker_link_end_frame(struct cn_worker_link *link);
/* The job's row was written, so the worker has it from here on. */
void cn_worker_link_took(struct cn_worker_link *link, struct cn_job *job);

/* The job that it has under this id; NULL: none. `streams`: it may be one that streams. */
struct cn_job *cn_worker_link_find(struct cn_worker_link *link, uint64_t job_id, bool streams);
/* A piece of the job's stream came. Returns true if it is the first one: its place among the rows
 * is free then. */
bool cn_worker_link_streams(struct cn_worker_link *link, struct cn_job *job);
/* The final answer to the job came, so the worker no longer has it. */
void cn_worker_link_answered(struct cn_worker_link *link, struct cn_job *job);

/* Tells the worker to stop a job, and that the job's client took `bytes` of its stream. */
void cn_worker_link_put_cancel(struct cn_worker_link *link, uint64_t job_id,
                               enum cn_stop_reason reason);
void cn_worker_link_put_credit(struct cn_worker_link *link, uint64_t job_id, uint64_t bytes);

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
