/* frontend/endpoints/service_envelope.c - service envelopes (--service-envelope json or kserve):
 * one request with several instances, one answer. On the loop of the request.
 *
 * TorchServe and the first KServe protocol wrap inputs as {"instances": [...]} and answers as
 * {"predictions": [...]}. Each instance becomes a job of its own, so that the scheduler batches the
 * instances with other requests; the answers are collected and written in the order of the
 * instances. An answer is put in as it is if the handler calls it JSON, and as a string otherwise.
 *
 * The first instance that fails fails the whole request, because the envelope has no form for a
 * partial answer. Rows that run at that time end by themselves; those that still wait are
 * cancelled. The envelope lies in the request's arena, and the request is held until the last job
 * has ended. */
#include "frontend/endpoints/service_envelope.h"

#include <stdlib.h>

#include "core/memory/mem.h"
#include "frontend/endpoints/row_input.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/json/envelope_json.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

struct envelope;

struct instance {
    struct cn_job job;
    struct cn_part part;
    struct envelope *envelope;
    struct cn_buf answer; /* the pieces of its answer, joined */
    bool is_json, done;
};

struct envelope {
    struct cn_http_request *request;
    struct cn_answer_box *refusal; /* answer of the first instance that failed */
    const char *key;               /* "predictions" */
    unsigned status;
    uint64_t bytes, max_bytes; /* bytes of all answers together */
    uint32_t n, left;
    struct instance *instances;
};

int
cn_service_envelope_parse(const char *word, enum cn_service_envelope *out, struct cn_error *err)
{
    static const struct {
        const char *word;
        enum cn_service_envelope envelope;
    } words[] = {{"none", CN_ENVELOPE_NONE},
                 {"body", CN_ENVELOPE_NONE},
                 {"kservev2", CN_ENVELOPE_NONE}, /* its requests have paths of their own */
                 {"json", CN_ENVELOPE_JSON},
                 {"kserve", CN_ENVELOPE_KSERVE}};

    *out = CN_ENVELOPE_NONE;
    if (!word)
        return 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].word) == 0) {
            *out = words[i].envelope;
            return 0;
        }
    }
    return cn_fail(
        err, CN_E_CONFIG,
        "--service-envelope: expected none, body, json, kserve or kservev2, found \"%.60s\"", word);
}

/* --- out */

static void
cancel_rest(struct envelope *envelope)
{
    for (uint32_t i = 0; i < envelope->n; i++) {
        struct instance *instance = &envelope->instances[i];

        if (!instance->done)
            cn_model_queue_cancel(instance->job.queue, &instance->job);
    }
}

static void
on_gone(struct cn_http_request *request)
{
    cancel_rest(request->call);
}

static void
answer_all(struct envelope *envelope)
{
    struct cn_error err = {0};
    struct cn_buf body;
    int rc = 0;

    cn_buf_init(&body, 0);
    if (envelope->bytes > envelope->max_bytes)
        rc = cn_fail(&err, CN_E_HANDLER_FAILED,
                     "Prediction failed: the answers to one request exceed the limit of %llu bytes "
                     "(answerMaxBytes)",
                     (unsigned long long)envelope->max_bytes);
    cn_buf_printf(&body, "{\n  \"%s\": [", envelope->key);
    for (uint32_t i = 0; i < envelope->n && !rc; i++) {
        cn_buf_puts(&body, i ? ",\n    " : "\n    ");
        rc = cn_envelope_put_answer(cn_buf_str(&envelope->instances[i].answer),
                                    envelope->instances[i].is_json, &body, &err);
    }
    cn_buf_puts(&body, envelope->n ? "\n  ]\n}\n" : "]\n}\n");
    if (!rc && body.failed)
        rc = cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the answer");
    if (rc)
        cn_http_answer_error(envelope->request, err.code, err.message, 0);
    else
        cn_http_answer_bytes(envelope->request, envelope->status, "application/json",
                             cn_buf_str(&body));
    cn_buf_fini(&body);
}

static void
finish(struct envelope *envelope)
{
    struct cn_http_request *request = envelope->request;

    request->on_gone = NULL; /* there is nothing left to cancel */
    if (envelope->refusal)
        cn_http_answer_piece(request, envelope->refusal); /* takes the box */
    else
        answer_all(envelope);
    for (uint32_t i = 0; i < envelope->n; i++)
        cn_buf_fini(&envelope->instances[i].answer);
    cn_http_request_release(request);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct instance *instance = cn_container_of(job, struct instance, job);
    struct envelope *envelope = instance->envelope;
    const struct cn_answer *answer = &box->answer;
    bool final = (answer->flags & CN_ANSWER_FINAL) != 0;
    size_t answer_bytes = answer->body.len;

    instance->done = final;
    if (answer->content_type.len)
        instance->is_json =
            cn_str_eq_nocase(cn_input_mime_type(answer->content_type), CN_STR("application/json"));
    if (final && answer->error_code && !envelope->refusal) {
        envelope->refusal = box;
        cancel_rest(envelope);
    } else {
        envelope->bytes += answer->body.len;
        if (envelope->bytes <= envelope->max_bytes)
            cn_buf_append_str(&instance->answer, answer->body);
        if (answer->status > envelope->status)
            envelope->status = answer->status;
        if (final)
            cn_http_answer_echo(envelope->request, box);
        cn_answer_box_free(box);
    }
    if (!final)
        cn_model_queue_consumed(job, answer_bytes);
    if (final && --envelope->left == 0)
        finish(envelope);
}

/* --- in */

/* Returns the instances of the request's body: the part named data, or else the part named body. */
static json_t *
open_envelope(const struct cn_row *row, uint32_t max, struct cn_error *err)
{
    struct cn_str body = cn_input_find(row, CN_STR("data"));

    return cn_envelope_open(body.len ? body : cn_input_find(row, CN_STR("body")), max, err);
}

/* Writes the text of each instance into the request's arena. */
static int
fill(struct envelope *envelope, const struct cn_job *model, const json_t *instances,
     struct cn_error *err)
{
    static const struct cn_job_ops ops = {on_answer};

    for (uint32_t i = 0; i < envelope->n; i++) {
        struct instance *instance = &envelope->instances[i];
        char *text = cn_envelope_instance_text(instances, i);

        if (!text)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u instances",
                           envelope->n);
        *instance = (struct instance){.job = *model, .envelope = envelope};
        instance->job.ops = &ops;
        instance->part.name = CN_STR("body");
        instance->part.content_type = CN_STR("application/json");
        instance->part.data = cn_arena_str(&envelope->request->arena, cn_str_from(text));
        free(text);
        instance->job.row.parts = &instance->part;
        instance->job.row.n_parts = 1;
        instance->job.row.flags |= CN_ROW_INSTANCE;
        cn_buf_init(&instance->answer, 0);
    }
    return 0;
}

int
cn_service_envelope_submit(struct cn_http_request *request, struct cn_model_queue *queue,
                           const struct cn_job *model, struct cn_error *err)
{
    const struct cn_http_shared *shared = request->listener->shared;
    struct envelope *envelope = cn_arena_alloc(&request->arena, sizeof(*envelope));
    bool explains = shared->envelope == CN_ENVELOPE_KSERVE && (model->row.flags & CN_ROW_EXPLAIN);
    json_t *instances = open_envelope(&model->row, shared->config->max_request_parts, err);
    int rc;

    if (!instances)
        return err->code;
    *envelope = (struct envelope){.request = request,
                                  .key = explains ? "explanations" : "predictions",
                                  .status = 200,
                                  .max_bytes = cn_model_queue_config(queue)->answer_max_bytes,
                                  .n = (uint32_t)json_array_size(instances)};
    envelope->left = envelope->n;
    if (envelope->n != 1 && cn_model_queue_config(queue)->sequence_batching) {
        rc = cn_fail(err, CN_E_BAD_REQUEST,
                     "the request has %u instances, but the model has sequences: send one instance "
                     "per request, since each is a step",
                     envelope->n);
    } else {
        envelope->instances =
            cn_arena_try_alloc(&request->arena, envelope->n * sizeof(struct instance));
        rc = envelope->instances || envelope->n == 0
                 ? fill(envelope, model, instances, err)
                 : cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u instances",
                           envelope->n);
    }
    json_decref(instances);
    if (rc)
        return rc;
    if (envelope->n == 0) {
        answer_all(envelope);
        return 0;
    }
    cn_http_request_hold(request, envelope, on_gone);
    for (uint32_t i = 0; i < envelope->n; i++)
        cn_model_queue_submit(queue, &envelope->instances[i].job);
    return 0;
}
