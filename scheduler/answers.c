/* scheduler/answers.c - what a worker answers, matched to jobs and passed on. On the queue's loop. */
#include "core/metrics.h"
#include "core/panic.h"
#include "scheduler/model_queue_priv.h"

/* Workers answer mostly in the order of sending, so the first one is usually it. */
static struct cn_job *
find_job(struct cn_worker_link *link, uint64_t job_id)
{
    struct cn_list *node;

    cn_list_for_each(node, &link->in_flight) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        if (job->row.job_id == job_id)
            return job;
    }
    return NULL;
}

/* After a death the answer comes from its beginning again; what the client has is not sent twice. */
static uint64_t
skip_of(struct cn_job *job, const struct cn_answer *answer)
{
    uint64_t skip = job->skip_bytes < answer->body.len ? job->skip_bytes : answer->body.len;

    if (answer->error_code != 0)
        return 0;
    job->skip_bytes -= skip;
    return skip;
}

static void
forward_piece(struct cn_job *job, const struct cn_answer *answer)
{
    uint64_t skip = skip_of(job, answer);
    struct cn_answer_box *box;

    if (skip > 0 && skip == answer->body.len)
        return;
    box = cn_answer_box_copy(job, answer, skip);
    if (!box)
        return;
    job->forwarded_bytes += answer->body.len - skip;
    cn_answer_box_deliver(box);
}

static void
finish(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
       const struct cn_answer *answer)
{
    struct cn_answer_box *box = cn_answer_box_copy(job, answer, skip_of(job, answer));
    struct cn_sequence *sequence = job->sequence;
    bool asked_end = job->row.flags & CN_ROW_END;

    cn_list_remove(&job->link);
    link->n_in_flight--;
    link->answers++;
    link->alone = false;
    queue->stats.in_flight_jobs--;
    if (answer->flags & CN_ANSWER_REPLAYED) {
        queue->stats.replayed++;
        cn_metrics_add(cn_loop_metrics(queue->loop), CN_M_JOBS_REPLAYED, 1);
    }
    cn_job_group_settle(cn_queue_group_of(job));
    cn_queue_finish(queue, job, box);
    if (sequence) {
        cn_sequence_learn(sequence, answer, asked_end);
        cn_sequence_update(sequence);
    }
    cn_queue_wake(queue);
}

int
cn_queue_on_answer(struct cn_worker_link *link, const struct cn_answer *answer,
                   struct cn_error *err)
{
    struct cn_job *job = find_job(link, answer->job_id);

    if (!job)
        return cn_fail(err, CN_E_PROTOCOL, "ANSWER for job %llu, which is not in flight there",
                       (unsigned long long)answer->job_id);
    link->progress_ms = cn_loop_now_ms(link->loop);
    if (answer->flags & CN_ANSWER_FINAL)
        finish(link->queue, link, job, answer);
    else
        forward_piece(job, answer);
    return 0;
}
