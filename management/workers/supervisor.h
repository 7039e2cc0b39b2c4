/* management/workers/supervisor.h - one worker: a process that is started again whenever it
 * ends.
 *
 * It belongs to the model queue's loop. A worker outlives its processes: index and id stay, the pid
 * changes.
 *
 *    starting -> loading -> ready -> (dies) -> starting     restarted at once
 *                loading fails -> backoff -> starting       at once, then after 1, 2, 4 ... 30 s
 *    any -> stopping -> gone
 *
 * A worker with index 0 is a zygote (zygote_workers.c): its process loads the model and forks the
 * processes of the others, which count as loading while they wait for it.
 */
#ifndef CN_MANAGEMENT_WORKERS_SUPERVISOR_H
#define CN_MANAGEMENT_WORKERS_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "management/models/model_load.h"
#include "management/workers/bounds.h"
#include "management/workers/error_lines.h"
#include "scheduler/queue/model_queue.h"

#define CN_LAST_WORDS_MAX 1000
#define CN_PROGRESS_MAX 160

struct cn_worker_process;

enum cn_worker_state {
    CN_WORKER_STARTING,
    CN_WORKER_LOADING,
    CN_WORKER_READY,
    CN_WORKER_BACKOFF,
    CN_WORKER_STOPPING
};
/* "starting", ... */
const char *cn_worker_state_word(enum cn_worker_state state);

/* What the workers of a model version have in common; borrowed by them. */
struct cn_worker_spec {
    struct cn_loop *loop;
    struct cn_model_queue *queue;
    const struct cn_model_about *about;
    const char *store_dir, *program; /* absolute */
    int lock_fd;                     /* inherited by the process; -1: none */
    uint64_t max_frame_bytes;
    struct cn_error_lines *error_lines; /* NULL: no bound */
    /* the zygote that forks the workers' processes; NULL: each process loads the model itself */
    struct cn_worker_process *zygote;
    bool held; /* no process is started now; the owner calls cn_worker_go_on() when it clears it */
};

/* These are never called from inside a function of this header. */
struct cn_worker_ops {
    /* The worker became ready, or it died and is started again. */
    void (*on_change)(void *owner, struct cn_worker_process *worker);
    /* The worker could not load the model; `why` is a sentence. It will be tried again. */
    void (*on_load_failed)(void *owner, struct cn_worker_process *worker, const char *why);
    /* The worker was stopped and its process has ended: the owner destroys it. */
    void (*on_gone)(void *owner, struct cn_worker_process *worker);
};

/* Makes a worker and starts its first process in a later turn. `index`: 1, 2, ... in the version, 0
 * for its zygote; `id`: unique in the server. `spec`, `ops` and `owner` are borrowed. */
struct cn_worker_process *cn_worker_create(const struct cn_worker_spec *spec, uint32_t index,
                                           uint32_t id, const struct cn_worker_ops *ops,
                                           void *owner);
/* Call it after on_gone. Before that only when no loop runs any more: it then kills the process and
 * waits for it. */
void cn_worker_destroy(struct cn_worker_process *worker);

/* Lets the worker finish what it was given and end; then on_gone. A second call does nothing. */
void cn_worker_stop(struct cn_worker_process *worker);
/* Like cn_worker_stop(), but with kill -9: a step that runs is not committed. */
void cn_worker_kill(struct cn_worker_process *worker);

/* Kills the present process with kill -9, and notes why; the worker then starts another one.
 * Returns its pid, or 0 if there is none. */
pid_t cn_worker_strike(struct cn_worker_process *worker, const char *why);

/* Starts the process whose start was put off because of `held`, if any, in a later turn. */
void cn_worker_go_on(struct cn_worker_process *worker);
/* Is there a process that may still run? */
bool cn_worker_has_process(const struct cn_worker_process *worker);

enum cn_worker_state cn_worker_state(const struct cn_worker_process *worker);
uint32_t cn_worker_index(const struct cn_worker_process *worker);
/* Is it a zygote whose model cannot be forked? It will be gone soon. */
bool cn_worker_declined(const struct cn_worker_process *zygote);
/* Will the worker take jobs, now or soon? Not while it backs off after it has failed to load from
 * the beginning on. */
bool cn_worker_is_coming(const struct cn_worker_process *worker);

/* What describe shows. */
struct cn_worker_facts {
    uint32_t id, index, restarts;
    enum cn_worker_state state;
    pid_t pid; /* 0: no process now */
    uint64_t started_wall_ms, live_sequences;
    bool loaded; /* it has loaded the model, in load_ms */
    uint64_t load_ms;
    struct cn_worker_stats stats; /* as it last reported */
    uint32_t busy_rows;           /* rows that it has; 0: none */
    uint64_t busy_ms;             /* how long it has made no progress with them */
    /* the id of the sequence of its first row, an integer id as digits; or empty */
    char busy_sequence[CN_SEQUENCE_ID_MAX + 1];
    bool waits;                     /* it waits for the zygote, whose progress is shown */
    char progress[CN_PROGRESS_MAX]; /* progress of loading; empty: not reported */
    char device[16];                /* "cuda:1"; empty: the CPU, or not loaded */
    char warning[512]; /* what the runtime said of the model when it was loaded; empty: nothing */
    char walls[256];   /* what stands around the process, words; empty: nothing, or not loaded */
    char lacking[512]; /* walls that could not be built, and why; empty: none */
    char unbounded[CN_BOUNDS_TEXT];    /* bounds that do not hold, and why; empty: none */
    char last_exit[CN_LAST_WORDS_MAX]; /* empty: it never ended */
};
void cn_worker_facts(const struct cn_worker_process *worker, struct cn_worker_facts *out);

#endif
