/* management/workers/bounds.h - how much of the machine the processes of one worker may use: memory
 * and CPU time in all, and the number of processes and threads. Loop of the worker's queue.
 *
 * Control groups (version 2) hold all three bounds, where the server's own group is delegated to
 * it: each worker gets a group of its own below that one, and what the worker starts stays in it.
 * Without them the kernel can only bound the processes of a user, and not those of root.
 */
#ifndef CN_MANAGEMENT_WORKERS_BOUNDS_H
#define CN_MANAGEMENT_WORKERS_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CN_BOUNDS_TEXT 256

/* 0: no bound. */
struct cn_bounds {
    uint64_t memory_bytes;
    uint32_t cpu_percent; /* of one processor: 150 is one and a half */
    uint32_t processes;   /* threads count, too */
    uint64_t temp_bytes;  /* of all workers of a model version (management/pool/temp_watch.h) */
};

/* Returns the smaller one of each pair of bounds: the operator's, and that in a model's YAML. */
struct cn_bounds cn_bounds_smaller(struct cn_bounds one, struct cn_bounds other);

/* Looks whether the server's group is delegated to it, and then moves the server into a group
 * "server" below it. `mount` is where control groups are mounted (NULL: the usual folders), and
 * `own` a file like /proc/self/cgroup. Call it once, before there are workers or other threads. */
void cn_bounds_start(const char *mount, const char *own);
/* Returns why there are no groups for workers; "": there are. */
const char *cn_bounds_no_groups(void);

/* Bounds the process, which runs no code of the model yet. `id` is unique among the server's
 * workers. `forks`: workers are forked from it. Writes into `lacking` which bounds do not hold and
 * why ("": all hold, or there are no groups and the process forks workers, which say it). */
void cn_bounds_set(const struct cn_bounds *bounds, uint32_t id, pid_t pid, bool forks,
                   char lacking[CN_BOUNDS_TEXT]);
/* Has the worker's group reached its limit of memory, so that the kernel has killed in it? To be
 * asked before cn_bounds_end. */
bool cn_bounds_took_too_much(uint32_t id);
/* The worker's process has ended: kills what it has left in its group, and removes the group. */
void cn_bounds_end(uint32_t id);

#endif
