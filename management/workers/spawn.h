/* management/workers/spawn.h - starts a worker process and watches how it ends. Queue's loop.
 *
 * The process gets three things besides its arguments: one end of a socket pair (descriptor 3), the
 * state folder's lock (4), and a pipe for stdout and stderr.
 */
#ifndef CN_MANAGEMENT_WORKERS_SPAWN_H
#define CN_MANAGEMENT_WORKERS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/errors/error.h"

#define CN_WORKER_LOCK_FD 4
#define CN_SPAWN_WORDS_MAX 8

struct cn_spawn_spec {
    const char *program; /* absolute */
    const char *script;  /* what the program, an interpreter, runs; NULL: it is the worker itself */
    const char *label;   /* "counter/1.0#1": shown by ps */
    /* what follows the label, up to a NULL; NULL: nothing. At most CN_SPAWN_WORDS_MAX words */
    const char *const *words;
    /* it installs packages: it also sees pip's variables and those of proxies and certificates */
    bool installs;
    const char *dir; /* its working folder */
    /* where it puts temporary files: becomes TMPDIR. NULL or "": the server's own */
    const char *temp_dir;
    int lock_fd; /* inherited as CN_WORKER_LOCK_FD; -1: none */
};

/* Everything is non-blocking and closed on exec. */
struct cn_spawned {
    pid_t pid;
    int pid_fd;    /* readable when the process has ended */
    int socket_fd; /* our end */
    int stderr_fd; /* what it prints */
};

/* The ends that the worker's process gets: its socket, and where it prints. */
struct cn_spawn_ends {
    int fds[2];
};

/* Opens both ends for a process that does not exist yet: `ours` has no pid and pid_fd. 0, or
 * CN_E_UNAVAILABLE, and then nothing is left open. */
int cn_spawn_open(struct cn_spawned *ours, struct cn_spawn_ends *theirs, struct cn_error *err);
/* Sets pid and pid_fd for a process that exists already. It must be a child of ours, and nobody may
 * have reaped it yet. */
int cn_spawn_adopt(struct cn_spawned *ours, pid_t pid, struct cn_error *err);
/* Any thread: is this a process that was started or adopted, and that nobody has reaped yet? */
bool cn_spawn_is_watched(pid_t pid);
/* Closes what is open. */
void cn_spawn_close(struct cn_spawned *ours);
void cn_spawn_close_ends(struct cn_spawn_ends *theirs);

/* Starts a process. 0, or CN_E_UNAVAILABLE, and then nothing is left open or running. */
int cn_spawn(const struct cn_spawn_spec *spec, struct cn_spawned *out, struct cn_error *err);

/* kill -9 by the pidfd, so it never hits another process. */
void cn_spawn_kill(int pid_fd);
/* kill -9 for a process that was not reaped yet, and for all of its descendants that stayed in its
 * process group. */
void cn_spawn_kill_group(pid_t pid);

/* How a process ended. */
struct cn_exit {
    bool by_signal;
    int number; /* signal or exit status */
};
/* Reaps the process if it has ended, and returns true then. Does not wait. */
bool cn_spawn_reap(int pid_fd, struct cn_exit *out);
/* Waits for the end and reaps. Only where the wait is known to be short: after a kill. */
void cn_spawn_wait(int pid_fd);
/* "was killed by signal 9 (SIGKILL)", "exited with status 1" */
void cn_exit_describe(const struct cn_exit *ended, char *out, size_t out_bytes);

/* The part of our environment that a worker may see, or with `installs` an installer of packages;
 * free it with cn_spawn_environment_free(). */
char **cn_spawn_environment(bool installs);
void cn_spawn_environment_free(char **environment);

#endif
