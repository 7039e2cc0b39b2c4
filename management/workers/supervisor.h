/* management/workers/supervisor.h - one worker slot: a process that is started again whenever it
 * ends.
 *
 * Owned by the model queue's loop. A slot outlives its processes: index and id stay, the pid
 * changes.
 *
 *   starting -> loading -> ready -> (dies) -> starting     restarted at once
 *               loading fails -> backoff -> starting       at once, then after 1, 2, 4 ... 30 s
 *   any -> stopping -> gone
 *
 * A slot of index 0 is a zygote (zygote_workers.c): its process loads the model and forks those of
 * the others, who are loading while they wait for it.
 */
#ifndef CN_MANAGEMENT_WORKERS_SUPERVISOR_H
#define CN_MANAGEMENT_WORKERS_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "management/models/model_load.h"
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
    struct cn_worker_process
        *zygote; /* that forks their processes; NULL: each loads the model itself */
};

/* None is called from inside a function of this header. */
struct cn_worker_ops {
    /* It became ready, or died and is on its way again. */
    void (*on_change)(void *owner, struct cn_worker_process *worker);
    /* It could not load the model, in words; it will be tried again. */
    void (*on_load_failed)(void *owner, struct cn_worker_process *worker, const char *why);
    /* It was stopped and its process has ended: the owner destroys it. */
    void (*on_gone)(void *owner, struct cn_worker_process *worker);
};

/* Starts the first process in a later turn. `index`: 1, 2, ... in the version, 0 for its zygote;
 * `id`: in the server. */
struct cn_worker_process *cn_worker_create(const struct cn_worker_spec *spec, uint32_t index,
                                           uint32_t id, const struct cn_worker_ops *ops,
                                           void *owner);
/* After on_gone; before it only when no loop runs any more: kills the process and waits for it. */
void cn_worker_destroy(struct cn_worker_process *worker);

/* Finish what was given to it, end, on_gone. Harmless twice. */
void cn_worker_stop(struct cn_worker_process *worker);
/* As stop, but with kill -9: a step that runs is not committed. */
void cn_worker_kill(struct cn_worker_process *worker);

enum cn_worker_state cn_worker_state(const struct cn_worker_process *worker);
uint32_t cn_worker_index(const struct cn_worker_process *worker);
/* A zygote whose model can't be forked; it is gone soon. */
bool cn_worker_declined(const struct cn_worker_process *zygote);
/* Will it take jobs, now or soon? No while it backs off after failing to load from its start on. */
bool cn_worker_is_coming(const struct cn_worker_process *worker);

/* What describe shows. */
struct cn_worker_facts {
    uint32_t id, index, restarts;
    enum cn_worker_state state;
    pid_t pid; /* 0: no process now */
    uint64_t started_wall_ms, live_sequences;
    bool loaded; /* the model; it took so long: */
    uint64_t load_ms;
    struct cn_worker_stats stats; /* as it told last */
    uint32_t busy_rows;           /* that it has; 0: none */
    uint64_t busy_ms;             /* without progress with them */
    char
        busy_sequence[CN_SEQUENCE_ID_MAX + 1]; /* of the first; an integer id as digits; or empty */
    bool waits;                                /* for the zygote, whose progress is shown */
    char progress[CN_PROGRESS_MAX];            /* of loading; empty: not told */
    char device[16];                           /* "cuda:1"; empty: the CPU, or not loaded */
    char warning[512]; /* what the runtime said of the model when it was loaded; empty: nothing */
    char last_exit[CN_LAST_WORDS_MAX]; /* empty: it never ended */
};
void cn_worker_facts(const struct cn_worker_process *worker, struct cn_worker_facts *out);

#endif
