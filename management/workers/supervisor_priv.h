/* management/workers/supervisor_priv.h - what supervisor.c, worker_facts.c, worker_events.c,
 * last_words.c and zygote_workers.c share: the members of a worker. */
#ifndef CN_MANAGEMENT_WORKERS_SUPERVISOR_PRIV_H
#define CN_MANAGEMENT_WORKERS_SUPERVISOR_PRIV_H

#include "core/time/timer_wheel.h"
#include "management/workers/spawn.h"
#include "management/workers/stderr_tail.h"
#include "management/workers/supervisor.h"
#include "metrics/counters/metrics.h"
#include "scheduler/workers/worker_link.h"

#define CN_WORKER_MAGIC 0x776f726bu
/* When a process has ended, its socket is read for this long at most; when its socket has ended,
 * the process gets this long to end. */
#define CN_WORKER_END_GRACE_MS 500
/* How long a process that was asked to stop may take after its last call. */
#define CN_WORKER_STOP_GRACE_MS 5000

struct cn_fork_order;

struct cn_worker_process {
    uint32_t magic;
    uint32_t index, id; /* index 0: a zygote */
    const struct cn_worker_spec *spec;
    const struct cn_worker_ops *ops;
    void *owner;
    enum cn_worker_state state;

    /* This process. */
    pid_t pid; /* 0: none */
    int pid_fd, stderr_fd;
    struct cn_watch pid_watch, stderr_watch;
    struct cn_worker_link *link;
    bool attached, exited, lost, loaded, overdue;
    struct cn_exit exit;
    char killed_for[256];                  /* why we killed it; empty: we did not */
    char lost_for[256];                    /* what the link said when it ended */
    char load_error[CN_ERROR_MESSAGE_MAX]; /* what the process said instead of loading */
    char progress[CN_PROGRESS_MAX];        /* how far loading is */
    char device[16];                       /* as reported when it was loaded; empty: the CPU */
    char warning[512]; /* what the runtime said of the model when it was loaded; empty: nothing */
    char walls[256];   /* what stands around the process, as reported when it was loaded */
    char lacking[512]; /* what could not be built around it, and why */
    char unbounded[CN_BOUNDS_TEXT]; /* which of its bounds do not hold, and why */
    uint64_t started_wall_ms, started_ms, load_ms;
    struct cn_worker_stats stats; /* as last reported; zero without a process */
    struct cn_stderr_tail tail;
    bool error_written; /* the last handler_error of the process was written into the log */

    /* The worker, over all its processes. */
    struct cn_timer timer; /* start, startup timeout, graces: one at a time, by state */
    struct cn_deferred finish;
    uint32_t restarts, failures; /* failures: loads in a row */
    bool ever_loaded, started_before;
    bool put_off; /* a process would have been started, but spec->held said no */
    char last_exit[CN_LAST_WORDS_MAX];

    /* zygote_workers.c */
    struct cn_fork_order *order; /* what it waits for at the zygote; NULL: nothing */
    struct cn_list orders;       /* if it is a zygote: its struct cn_fork_order, the oldest first */
    bool declined;               /* a zygote that can't fork its model */
};

static inline bool
cn_worker_is_zygote(const struct cn_worker_process *worker)
{
    return worker->index == 0;
}

/* --- supervisor.c */

void cn_worker_arm(struct cn_worker_process *worker, uint64_t delay_ms);
/* Adds `n` to the model's metric; a zygote is not counted. */
void cn_worker_count(struct cn_worker_process *worker, enum cn_metric metric, int n);
/* The process has ended, or its socket has: when both have, the worker goes on at the end of the
 * turn. */
void cn_worker_check_end(struct cn_worker_process *worker);
/* Kills the process with kill -9. Only the first reason is reported. */
void cn_worker_kill_for(struct cn_worker_process *worker, const char *why);
/* Scripts look in TorchServe's log for its sentences. */
void cn_worker_say_as_torchserve(const struct cn_worker_process *worker, const char *sentence);
/* The worker that waited gets its process; `process` is the worker's from here on. */
void cn_worker_take_process(struct cn_worker_process *worker, const struct cn_spawned *process);
/* ... or starts one that loads the model itself, ... */
void cn_worker_start_alone(struct cn_worker_process *worker);
/* ... or fails as if that had failed. */
void cn_worker_start_failed(struct cn_worker_process *worker, const char *why);

/* --- worker_facts.c */

/* "worker 2", "zygote" */
const char *cn_worker_name(const struct cn_worker_process *worker, char out[32]);
/* "m/1.0#2": what ps shows */
void cn_worker_label(const struct cn_worker_process *worker, char *out, size_t out_bytes);

/* --- worker_events.c */

/* The owner is the struct cn_worker_process. */
extern const struct cn_worker_link_ops cn_worker_link_events;

/* --- last_words.c */

/* Called for stderr_watch: lines go to the log, and the last ones are kept. */
void cn_worker_on_stderr(struct cn_watch *watch, uint32_t events);
/* The process has ended: the rest of its lines, last_exit, and the log's line about it. */
void cn_worker_note_end(struct cn_worker_process *worker);

/* --- zygote_workers.c */

/* The worker waits for its process, which one of the three calls above brings in a later turn.
 * False: this zygote has none for it. */
bool cn_zygote_order(struct cn_worker_process *zygote, struct cn_worker_process *worker);
/* The worker no longer waits. */
void cn_zygote_forget(struct cn_worker_process *worker);
/* The zygote has loaded its model. */
void cn_zygote_begin(struct cn_worker_process *zygote);
void cn_zygote_on_forked(struct cn_worker_process *zygote, const struct cn_forked *forked);
/* The zygote will not answer its orders any more. */
void cn_zygote_end(struct cn_worker_process *zygote);

#endif
