/* scheduler/queue/departed.c - a step whose client left before the step was admitted is not done.
 *
 * A client that got no answer, and sends neither keys nor step numbers, asks its sequence what
 * became of the step, and sends the step again if it is not done. The first copy may still lie in
 * another loop's socket or mailbox, behind that question. It is recognised by its connection, which
 * the client closed before it asked. So the socket is looked at here, on the queue's loop, where
 * all steps of a sequence pass one after the other
 * (docs/decisions/0023-steps-of-clients-that-left.md). A client of gRPC can also cancel its call
 * and keep the connection; the loop that reads this sets job->left.
 *
 * One poll() looks at all sockets of a turn. The decision page says what it costs.
 */
#define _GNU_SOURCE 1 /* POLLRDHUP */
#include <errno.h>
#include <poll.h>

#include "core/errors/panic.h"
#include "scheduler/queue/model_queue_priv.h"

#define LOOK_MAX 64 /* at once */

/* Must the job's socket be looked at? A copy with a step number is recognised when it runs, but a
 * START has the number 1 whatever there was before. A copy with a key is recognised only while the
 * key is among the last sequence.keyWindow ones, and the copy may come later than that. */
static bool
is_looked_at(const struct cn_job *job)
{
    const uint32_t flags = job->row.flags;

    return !(flags & CN_ROW_DESCRIBE) && (!(flags & CN_ROW_NUMBERED) || (flags & CN_ROW_START));
}

static bool
has_left(const struct cn_job *job)
{
    return job->left && atomic_load_explicit(job->left, memory_order_acquire);
}

static void
refuse(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_list_remove(&job->link);
    cn_queue_fail(queue, job, CN_E_CANCELLED,
                  "the client closed its side of the connection, or cancelled the call, before the "
                  "step was admitted, so the step is not done; wait for the answer, or send a step "
                  "number");
}

/* Answers those of the `n` jobs whose clients have closed their sides of the sockets in `looks`. A
 * socket's own loop may close it just before poll(). Then its number is free, or that of another
 * client's socket, and job->left, where there is one, was set before. */
static void
refuse_departed(struct cn_model_queue *queue, struct pollfd *looks, struct cn_job **jobs, nfds_t n)
{
    int found;

    do {
        found = poll(looks, n, 0);
    } while (found < 0 && errno == EINTR);
    cn_assert(found >= 0 || errno == ENOMEM);
    for (nfds_t i = 0; i < n; i++)
        if ((looks[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) || has_left(jobs[i]))
            refuse(queue, jobs[i]);
}

void
cn_queue_refuse_departed(struct cn_model_queue *queue, struct cn_list *incoming)
{
    struct pollfd looks[LOOK_MAX];
    struct cn_job *jobs[LOOK_MAX];
    struct cn_list *node, *next;
    nfds_t n = 0;

    if (!queue->stateful)
        return;
    cn_list_for_each_safe(node, next, incoming) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        if (!is_looked_at(job))
            continue;
        if (has_left(job)) {
            refuse(queue, job);
            continue;
        }
        if (job->connection <= 0)
            continue;
        jobs[n] = job;
        looks[n++] = (struct pollfd){.fd = job->connection, .events = POLLRDHUP};
        if (n == LOOK_MAX) {
            refuse_departed(queue, looks, jobs, n);
            n = 0;
        }
    }
    if (n)
        refuse_departed(queue, looks, jobs, n);
}
