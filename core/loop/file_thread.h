/* core/loop/file_thread.h - background threads for work that waits for the disk, or for a download.
 *
 * Unpacking, digests, store checks, removal of folders: nothing of that may
 * stand in a loop's way. With one thread tasks run one by one, in order.
 */
#ifndef CN_CORE_LOOP_FILE_THREAD_H
#define CN_CORE_LOOP_FILE_THREAD_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"

struct cn_file_thread;

/* Embedded in what the task works on; it stays valid until `done` was called. */
struct cn_file_task {
    struct cn_msg msg;                       /* the thread's own */
    struct cn_file_task *next;               /* the thread's own */
    void (*work)(struct cn_file_task *task); /* on the file thread */
    void (*done)(struct cn_file_task *task); /* on the loop that answers go to */
};

#define CN_FILE_THREADS_MAX 8

/* `loop` gets the answers. `n_threads`: 1 to CN_FILE_THREADS_MAX. */
int cn_file_thread_create(struct cn_loop *loop, unsigned n_threads, struct cn_file_thread **out,
                          struct cn_error *err);
/* Finishes the tasks at hand and forgets the others. NULL is allowed. */
void cn_file_thread_destroy(struct cn_file_thread *thread);
/* Any thread. */
void cn_file_thread_run(struct cn_file_thread *thread, struct cn_file_task *task);

#endif
