/* management/pool/worker_pool.h - the model queue and the workers of one model version.
 *
 * A pool lives on its queue's loop. Loop 0 sends it orders by messages and gets the answers by
 * messages. The struct of an order belongs to loop 0 and stays valid until its answer.
 */
#ifndef CN_MANAGEMENT_POOL_WORKER_POOL_H
#define CN_MANAGEMENT_POOL_WORKER_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "management/pool/autoscale.h"
#include "management/workers/supervisor.h"
#include "metrics/counters/metrics.h"
#include "metrics/series/handler_series.h"
#include "scheduler/queue/model_queue.h"

struct cn_worker_pool;

/* What the pool publishes: written on its loop, read on any. Relaxed, because each is a number by
 * itself. */
struct cn_worker_pool_health {
    _Atomic uint32_t ready, wanted; /* workers; wanted: at least, as minWorkers says */
    atomic_bool on_demand;          /* none is there, and the next step starts one */
};

/* Any thread: a worker is ready, or will be started for the next step. */
static inline bool
cn_worker_pool_is_ready(const struct cn_worker_pool_health *health)
{
    return atomic_load_explicit(&health->ready, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&health->on_demand, memory_order_relaxed);
}

/* What a pool is made from. It is borrowed until the pool is closed. */
struct cn_worker_pool_spec {
    struct cn_loop *loop, *home; /* the queue's, and the one that answers go to (loop 0) */
    const struct cn_model_about *about;
    const char *store_dir, *program;
    int lock_fd;
    uint64_t max_frame_bytes;
    uint32_t error_lines;             /* log lines about failing steps in a second; 0: all */
    _Atomic uint32_t *next_worker_id; /* of the server */
    struct cn_worker_pool_health *health;
    struct cn_family family;
    struct cn_accounts *accounts; /* of the owners of sequences; NULL: there are no owners */
    bool scales;                  /* workers follow the load */
};

/* --- Orders: from loop 0, answered on it. Each order is embedded in what waits for it. */

struct cn_worker_pool_start {
    struct cn_worker_pool *pool;
    struct cn_model_queue *queue; /* the answer: predictions may now find it */
    void (*on_done)(struct cn_worker_pool_start *start);
};
/* Makes a pool; its queue comes with the answer to cn_worker_pool_start. */
struct cn_worker_pool *cn_worker_pool_create(const struct cn_worker_pool_spec *spec);
void cn_worker_pool_start(struct cn_worker_pool *pool, struct cn_worker_pool_start *start);

enum cn_scale_outcome {
    CN_SCALE_DONE,      /* exactly as many workers as wanted are ready */
    CN_SCALE_FAILED,    /* a worker could not load the model; it is tried again */
    CN_SCALE_SUPERSEDED /* another order came, or the pool closed */
};
struct cn_worker_pool_scale {
    struct cn_worker_pool *pool;
    uint32_t min, max; /* workers: fewer than min are started, more than max stopped */
    struct cn_list link;
    enum cn_scale_outcome outcome; /* the answer */
    char why[CN_LAST_WORDS_MAX];   /* if it failed: the reason */
    void (*on_done)(struct cn_worker_pool_scale *scale);
};
void cn_worker_pool_scale(struct cn_worker_pool *pool, struct cn_worker_pool_scale *scale);

/* How the number of workers came about. */
struct cn_worker_pool_scaling {
    bool automatic;
    const char *fixed_for; /* the setting of the model that forbids it; NULL: none does */
    uint32_t wanted, from, to;
    enum cn_scale_reason reason; /* the reason of the last change */
    uint64_t wall_ms;            /* when that was */
};

struct cn_worker_pool_facts {
    struct cn_worker_pool *pool;
    struct cn_worker_pool_scaling scaling;
    uint32_t n_workers;
    struct cn_worker_facts *workers; /* the answer; freed by cn_worker_pool_facts_fini */
    bool has_zygote;
    struct cn_worker_facts zygote;
    struct cn_model_queue_stats queue;
    struct cn_metrics metrics;
    bool wants_series; /* set by the caller: `series` is to be filled */
    struct cn_series_copy series;
    char last_error[CN_LAST_WORDS_MAX]; /* why the last load failed; empty: it succeeded */
    void (*on_done)(struct cn_worker_pool_facts *facts);
};
void cn_worker_pool_facts(struct cn_worker_pool *pool, struct cn_worker_pool_facts *facts);
void cn_worker_pool_facts_fini(struct cn_worker_pool_facts *facts);

/* Kills one worker's process with kill -9, as an operator who tries out what happens. The steps
 * that it had are sent again, and the server starts another process. */
struct cn_worker_pool_strike {
    struct cn_worker_pool *pool;
    uint32_t index;
    pid_t pid; /* the answer: the process that was killed; 0: there is no such worker, or it has no
                  process now */
    void (*on_done)(struct cn_worker_pool_strike *strike);
};
void cn_worker_pool_strike(struct cn_worker_pool *pool, struct cn_worker_pool_strike *strike);

struct cn_worker_pool_close {
    struct cn_worker_pool *pool;
    struct cn_loop *home; /* the pool's own */
    int code;             /* new jobs are refused with it ... */
    char reason[400];     /* ... and this */
    bool drop_waiting, close_sequences;
    bool everywhere; /* all nodes close it: its sequences in a shared store are closed, too */
    void (*on_done)(
        struct cn_worker_pool_close *close); /* all workers are gone, the queue is destroyed */
};
/* Closes a pool. The queue must be in no view any more, or its jobs must stop coming by themselves
 * (in a drain). */
void cn_worker_pool_close(struct cn_worker_pool *pool, struct cn_worker_pool_close *close);
/* While it closes: asks handlers that stream to end their streams. */
void cn_worker_pool_stop_streams(struct cn_worker_pool *pool);
/* While it closes: refuse what still waits; `kill`: and kill the workers now. No answer. */
void cn_worker_pool_hurry(struct cn_worker_pool *pool, bool kill);
/* Frees the pool, after the close was answered; on_done is called once more, with pool NULL. It
 * goes by way of the pool's loop, where earlier orders may still be under way. */
void cn_worker_pool_release(struct cn_worker_pool_close *close);
/* When no loop runs any more: kills the workers and frees the pool; the queue is left as it is. */
void cn_worker_pool_destroy_at_exit(struct cn_worker_pool *pool);

#endif
