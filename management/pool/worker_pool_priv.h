/* management/pool/worker_pool_priv.h - what worker_pool.c, pool_orders.c, pool_scaling.c,
 * pool_temp.c, pool_facts.c and strike.c share: a pool from inside. On the queue's loop. */
#ifndef CN_MANAGEMENT_POOL_WORKER_POOL_PRIV_H
#define CN_MANAGEMENT_POOL_WORKER_POOL_PRIV_H

#include "core/time/timer_wheel.h"
#include "management/pool/worker_pool.h"

#define CN_SLAB_MAGIC 0x706f6f6cu

struct cn_worker_pool_member {
    struct cn_list link;
    struct cn_worker_process *worker;
};

struct cn_worker_pool {
    uint32_t magic;
    struct cn_worker_pool_spec spec;
    struct cn_worker_spec workers_spec;
    struct cn_error_lines error_lines;
    struct cn_model_queue *queue;
    struct cn_list members;  /* by age */
    bool unforkable;         /* its zygote has said so */
    struct cn_list scalings; /* struct cn_worker_pool_scale: orders that wait for their outcome */
    uint32_t wanted;         /* workers that should run */
    uint32_t min, max;       /* bounds of `wanted`, as last ordered */
    struct cn_autoscale autoscale;
    struct cn_worker_pool_scaling scaling;
    struct cn_timer tick; /* looks at the load; armed while there is something to look at */
    bool emptied;         /* closing: no job is left, the workers are stopping */
    struct cn_worker_pool_close *close; /* the order to close; NULL: none yet */
    struct cn_temp_watch *temp_watch;   /* NULL: its temporary files have no bound */
    bool empties_temp;                  /* the temporary files are being deleted */
    char last_error[CN_LAST_WORDS_MAX];
    struct cn_deferred check; /* at the end of the turn: numbers changed */
};

static inline struct cn_worker_pool_member *
cn_worker_pool_member_of(struct cn_list *node)
{
    return cn_container_of(node, struct cn_worker_pool_member, link);
}

static inline bool
cn_worker_pool_worker_is_ready(const struct cn_worker_process *worker)
{
    return cn_worker_state(worker) == CN_WORKER_READY;
}

static inline bool
cn_worker_pool_worker_is_any(const struct cn_worker_process *worker)
{
    (void)worker;
    return true;
}

/* --- worker_pool.c */

uint32_t cn_worker_pool_count(const struct cn_worker_pool *pool,
                              bool (*counts)(const struct cn_worker_process *worker));
/* At the end of the turn, looks at what has changed. */
void cn_worker_pool_check_soon(struct cn_worker_pool *pool);
/* Answers all orders to scale that still wait. */
void cn_worker_pool_end_scalings(struct cn_worker_pool *pool, enum cn_scale_outcome outcome,
                                 const char *why);
/* Notes for descriptions that the number changes, and why. Call it before
 * cn_worker_pool_run_workers(). */
void cn_worker_pool_note_scaling(struct cn_worker_pool *pool, uint32_t wanted,
                                 enum cn_scale_reason reason);
/* Sets the number of workers that should run, and starts or stops some. */
void cn_worker_pool_run_workers(struct cn_worker_pool *pool, uint32_t wanted);

/* --- pool_temp.c */

/* Begins to bound the temporary files of the workers, if there is a bound, and ends that. */
void cn_worker_pool_watch_temp(struct cn_worker_pool *pool);
void cn_worker_pool_unwatch_temp(struct cn_worker_pool *pool);
/* Processes have ended: if that was waited for, the temporary files are deleted. */
void cn_worker_pool_empty_temp(struct cn_worker_pool *pool);

/* --- pool_scaling.c */

/* Workers follow the load where the server and the model want it, and the model can. */
void cn_worker_pool_begin_scaling(struct cn_worker_pool *pool);
/* The load now; what it counts since the last look begins anew. */
void cn_worker_pool_see(struct cn_worker_pool *pool, struct cn_autoscale_seen *seen);
/* Looks again often while steps wait, a few times in scaleDownIdleMSec while there is a worker more
 * than need be, else not at all. */
void cn_worker_pool_arm_tick(struct cn_worker_pool *pool, const struct cn_autoscale_seen *seen);
/* The function of the timer pool->tick. */
void cn_worker_pool_on_tick(struct cn_timer *timer);

#endif
