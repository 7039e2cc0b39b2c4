/* core/loop/file_thread.h - background threads for work that waits for the disk or for a download.
 *
 * Unpacking archives, digests, checks of stores, removal of folders: none of that may hold up a
 * loop. With one thread the tasks run one by one, in order. */
#ifndef CN_CORE_LOOP_FILE_THREAD_H
#define CN_CORE_LOOP_FILE_THREAD_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"

struct cn_file_thread;

/* A task, as a member of what it works on. It stays valid until `done` was called. */
struct cn_file_task {
    struct cn_msg msg;                       /* the thread's own */
    struct cn_file_task *next;               /* the thread's own */
    void (*work)(struct cn_file_task *task); /* called on a file thread */
    void (*done)(struct cn_file_task *task); /* called on the loop that gets the answers */
};

#define CN_FILE_THREADS_MAX 8

/* Starts `n_threads` threads, 1 to CN_FILE_THREADS_MAX, whose answers go to `loop`. Free it with
 * cn_file_thread_destroy. CN_E_UNAVAILABLE: a thread cannot be started. */
int cn_file_thread_create(struct cn_loop *loop, unsigned n_threads, struct cn_file_thread **out,
                          struct cn_error *err);
/* Waits for the tasks that are being done, and forgets the others. NULL is allowed. */
void cn_file_thread_destroy(struct cn_file_thread *thread);
/* Adds a task to the queue. Any thread. */
void cn_file_thread_run(struct cn_file_thread *thread, struct cn_file_task *task);

#endif
