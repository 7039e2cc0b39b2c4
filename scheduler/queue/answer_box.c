/* scheduler/queue/answer_box.c - answers with their own bytes, on their way to a job's loop. They
 * are made on the model queue's loop, and delivered and freed on the job's origin.
 *
 * A frame's bytes are valid only while it is handled, so an answer is copied into a box. The box,
 * its headers and all of its bytes are one block. There are two exceptions: a large body that was
 * read into memory of its own keeps that memory (`read`), and a body that the front end replaces is
 * copied into a new box.
 *
 * If memory runs out for a piece, the job is marked (piece_lost) and nothing more of it is passed
 * on until the final piece, which then is an error. So a client never gets an answer with a hole.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/loop/loop.h"
#include "core/memory/mem.h"
#include "scheduler/queue/answer_box_priv.h"
#include "scheduler/queue/job_phases.h"
#include "tracing/trace.h"

void
cn_answer_box_free(struct cn_answer_box *box)
{
    if (!box)
        return;
    if (box->read)
        cn_free(box->read);
    cn_free(box);
}

/* Copies `text` to *at and moves *at behind it. */
static struct cn_str
put(char **at, struct cn_str text)
{
    struct cn_str copy = {*at, text.len};

    if (text.len)
        memcpy(*at, text.ptr, text.len);
    *at += text.len;
    return copy;
}

struct cn_answer_box *
cn_answer_box_text(struct cn_str content_type, struct cn_str body, bool is_final)
{
    struct cn_answer_box *box = cn_try_alloc(sizeof(*box) + content_type.len + body.len);
    char *at;

    if (!box)
        return NULL;
    memset(box, 0, sizeof(*box));
    at = box->bytes;
    box->answer.content_type = put(&at, content_type);
    box->answer.body = put(&at, body);
    box->answer.flags = is_final ? CN_ANSWER_FINAL : 0;
    return box;
}

static struct cn_str
sequence_id_of(const struct cn_job *job)
{
    return job->row.flags & CN_ROW_STATEFUL ? cn_job_client_id(job) : (struct cn_str){NULL, 0};
}

static struct cn_str
traceparent_of(const struct cn_job *job)
{
    return job->trace ? (struct cn_str){job->trace->answered, CN_TRACEPARENT_LEN}
                      : (struct cn_str){NULL, 0};
}

/* The array of headers comes first in `bytes`, at the first place that is aligned for it. */
static size_t
headers_offset(void)
{
    size_t at = offsetof(struct cn_answer_box, bytes), align = _Alignof(struct cn_header);

    return (at + align - 1) / align * align;
}

static size_t
box_bytes(const struct cn_job *job, const struct cn_answer *answer)
{
    size_t bytes = headers_offset() + answer->n_headers * sizeof(*answer->headers);
    uint32_t i;

    bytes += answer->content_type.len + answer->body.len + sequence_id_of(job).len +
             traceparent_of(job).len;
    for (i = 0; i < answer->n_headers; i++)
        bytes += answer->headers[i].name.len + answer->headers[i].value.len;
    return bytes > sizeof(struct cn_answer_box) ? bytes : sizeof(struct cn_answer_box);
}

static void
fill(struct cn_answer_box *box, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_header *headers = (struct cn_header *)((char *)box + headers_offset());
    char *at = (char *)(headers + answer->n_headers);
    uint32_t i;

    memset(box, 0, sizeof(*box));
    box->job = job;
    box->answer = *answer;
    box->answer.headers = answer->n_headers ? headers : NULL;
    for (i = 0; i < answer->n_headers; i++) {
        headers[i].name = put(&at, answer->headers[i].name);
        headers[i].value = put(&at, answer->headers[i].value);
    }
    box->answer.content_type = put(&at, answer->content_type);
    box->answer.body = put(&at, answer->body);
    box->sequence_id = put(&at, sequence_id_of(job));
    box->traceparent = put(&at, traceparent_of(job));
}

struct cn_answer_box *
cn_answer_box_copy(struct cn_job *job, const struct cn_answer *answer, uint64_t skip)
{
    struct cn_answer_box *box = NULL;
    struct cn_answer rest;

    if (skip) {
        rest = *answer;
        skip = skip < rest.body.len ? skip : rest.body.len;
        rest.body = (struct cn_str){rest.body.ptr + skip, rest.body.len - skip};
        answer = &rest;
    }
    if (!job->piece_lost)
        box = cn_try_alloc(box_bytes(job, answer));
    if (box) {
        fill(box, job, answer);
        return box;
    }
    if (!(answer->flags & CN_ANSWER_FINAL)) {
        job->piece_lost = true;
        return NULL;
    }
    return cn_answer_box_error(job, CN_E_OUT_OF_MEMORY, "not enough memory for the answer", 0);
}

struct cn_answer_box *
cn_answer_box_keep(struct cn_job *job, const struct cn_answer *answer, char *read)
{
    struct cn_answer head = *answer;
    struct cn_answer_box *box;

    head.body.len = 0;
    box = cn_alloc(box_bytes(job, &head));
    fill(box, job, &head);
    box->answer.body = answer->body;
    box->read = read;
    return box;
}

struct cn_answer_box *
cn_answer_box_remake(struct cn_answer_box *box, struct cn_str content_type, struct cn_str body)
{
    struct cn_answer answer = box->answer;
    struct cn_answer_box *made;

    answer.content_type = content_type;
    answer.body = body;
    made = cn_try_alloc(box_bytes(box->job, &answer));
    if (!made) {
        box->answer.flags |= CN_ANSWER_FINAL;
        box->answer.error_code = CN_E_OUT_OF_MEMORY;
        box->answer.body = CN_STR("not enough memory for the answer");
        return box;
    }
    fill(made, box->job, &answer);
    made->remade = true;
    made->made_of_bytes = box->remade ? box->made_of_bytes : box->answer.body.len;
    cn_answer_box_free(box);
    return made;
}

struct cn_answer_box *
cn_answer_box_error(struct cn_job *job, int code, const char *message, uint32_t retry_after_s)
{
    const struct cn_answer answer = {
        .job_id = job->row.job_id,
        .flags = CN_ANSWER_FINAL,
        .error_code = code,
        .body = cn_str_from(message),
    };
    struct cn_answer_box *box = cn_alloc(box_bytes(job, &answer));

    fill(box, job, &answer);
    box->retry_after_s = retry_after_s;
    return box;
}

static bool
has_message_out(const struct cn_job *job)
{
    return job->cancel_message == CN_JOB_MESSAGE_OUT || job->credit_message == CN_JOB_MESSAGE_OUT;
}

/* From here on no message of the job leaves, because its owner may free it at any time. The owner
 * may still have pieces that its client takes only now, and says so. */
static void
keep_messages(struct cn_job *job)
{
    if (job->cancel_message == CN_JOB_MESSAGE_HOME)
        cn_job_message_to(&job->cancel_message, CN_JOB_MESSAGE_SPENT);
    if (job->credit_message == CN_JOB_MESSAGE_HOME)
        cn_job_message_to(&job->credit_message, CN_JOB_MESSAGE_SPENT);
}

/* On the origin: gives the job's owner a piece of the answer. With the final one the owner may free
 * the job, so what a trace says of it is noted before. */
static void
give(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_trace *trace = box->answer.flags & CN_ANSWER_FINAL ? job->trace : NULL;
    const unsigned loop = cn_loop_index(job->origin);

    if (trace && trace->job != job) /* a forwarded step: the trace goes on */
        trace = NULL;
    if (trace)
        cn_trace_answered(trace, &job->row, &box->answer,
                          box->sequence_id.len ? job->row.sequence_id : box->sequence_id,
                          cn_loop_now_us(job->origin));
    if ((box->answer.flags & CN_ANSWER_FINAL) && !cn_job_stands_in(job))
        cn_loop_answered(job->origin);
    if (box->answer.flags & CN_ANSWER_FINAL)
        keep_messages(job);
    /* The version that streams may have less under way than the one that the job was sent to. */
    if (box->credit_least && box->credit_least < job->credit_least)
        job->credit_least = box->credit_least;
    job->ops->on_answer(job, box);
    if (trace)
        cn_trace_send(trace, loop);
}

/* On the origin. After a final piece the job's memory belongs to the front end, so this piece waits
 * until no message of the job is under way. */
static void
arrived(struct cn_msg *msg)
{
    struct cn_answer_box *box = cn_container_of(msg, struct cn_answer_box, msg);
    struct cn_job *job = box->job;

    if ((box->answer.flags & CN_ANSWER_FINAL) && has_message_out(job))
        job->final_box = box;
    else
        give(job, box);
}

void
cn_answer_box_message_back(struct cn_job *job)
{
    if (job->final_box && !has_message_out(job))
        give(job, job->final_box);
}

void
cn_answer_box_deliver(struct cn_answer_box *box)
{
    struct cn_job *job = box->job;

    if (job->origin == job->queue_loop) {
        give(job, box);
        return;
    }
    box->msg.fn = arrived;
    cn_loop_post(job->origin, &box->msg);
}
