/* core/loop/file_thread.c - background threads for work that waits for the disk or for a download.
 *
 * The threads share one queue. A task's life: cn_file_thread_run appends it, a thread takes it and
 * calls `work`, then posts it to the loop as a message, and the loop calls `done`. The mutex guards
 * the queue and `stopping`, and is held for a few instructions only. */
#include "core/loop/file_thread.h"

#include <pthread.h>
#include <signal.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

struct cn_file_thread {
    struct cn_loop *loop;
    pthread_t threads[CN_FILE_THREADS_MAX];
    unsigned n_threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct cn_file_task *first, **last;
    bool stopping;
};

static void
task_done(struct cn_msg *msg)
{
    struct cn_file_task *task = cn_container_of(msg, struct cn_file_task, msg);

    task->done(task);
}

/* Waits for the next task; NULL when the thread must end. */
static struct cn_file_task *
thread_take(struct cn_file_thread *thread)
{
    struct cn_file_task *task = NULL;

    pthread_mutex_lock(&thread->lock);
    while (!thread->first && !thread->stopping)
        pthread_cond_wait(&thread->wake, &thread->lock);
    if (!thread->stopping) {
        task = thread->first;
        thread->first = task->next;
        if (!thread->first)
            thread->last = &thread->first;
    }
    pthread_mutex_unlock(&thread->lock);
    return task;
}

static void *
thread_main(void *arg)
{
    struct cn_file_thread *thread = arg;
    struct cn_file_task *task;

    while ((task = thread_take(thread))) {
        task->work(task);
        task->msg.fn = task_done;
        cn_loop_post(thread->loop, &task->msg);
    }
    return NULL;
}

int
cn_file_thread_create(struct cn_loop *loop, unsigned n_threads, struct cn_file_thread **out,
                      struct cn_error *err)
{
    struct cn_file_thread *thread = cn_alloc(sizeof *thread);
    sigset_t all, before;
    int rc = 0;

    cn_assert(n_threads > 0 && n_threads <= CN_FILE_THREADS_MAX);
    thread->loop = loop;
    thread->last = &thread->first;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->wake, NULL);
    /* The main thread handles the signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!rc && thread->n_threads < n_threads) {
        rc = pthread_create(&thread->threads[thread->n_threads], NULL, thread_main, thread);
        thread->n_threads += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        cn_file_thread_destroy(thread);
        return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start the file thread");
    }
    *out = thread;
    return 0;
}

void
cn_file_thread_destroy(struct cn_file_thread *thread)
{
    unsigned i;

    if (!thread)
        return;
    pthread_mutex_lock(&thread->lock);
    thread->stopping = true;
    pthread_cond_broadcast(&thread->wake);
    pthread_mutex_unlock(&thread->lock);
    for (i = 0; i < thread->n_threads; i++)
        pthread_join(thread->threads[i], NULL);
    pthread_cond_destroy(&thread->wake);
    pthread_mutex_destroy(&thread->lock);
    cn_free(thread);
}

void
cn_file_thread_run(struct cn_file_thread *thread, struct cn_file_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&thread->lock);
    *thread->last = task;
    thread->last = &task->next;
    pthread_cond_signal(&thread->wake);
    pthread_mutex_unlock(&thread->lock);
}
