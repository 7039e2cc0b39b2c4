/* frontend/endpoints/typed.c - predictions of typed models over /predictions: makes tensors from
 * JSON or bytes, and JSON from tensors. On the loop of the request.
 *
 * A typed model declares its tensors, and its handler gets and returns only tensors. So that plain
 * HTTP clients can use it, too, this file turns a JSON object of names and values, or the bytes of
 * the only input, into a v2 request. It turns the answer's tensors into a JSON object. A streamed
 * answer becomes one JSON object in each line.
 */
#include "frontend/endpoints/typed.h"

#include "frontend/endpoints/row_input.h"
#include "frontend/http/http_request.h"
#include "kserve/plain.h"
#include "scheduler/queue/job.h"
#include "scheduler/queue/model_queue.h"

static bool
is_sound(struct cn_str type)
{
    return type.len > 6 && cn_str_eq_nocase((struct cn_str){type.ptr, 6}, CN_STR("audio/"));
}

/* Returns true if the body is JSON. The content type decides. If it says nothing (curl's default is
 * a form), the first character does. */
static bool
is_json(const struct cn_part *body)
{
    size_t i = 0;

    if (cn_str_eq_nocase(body->content_type, CN_STR("application/json")))
        return true;
    if (cn_str_eq_nocase(body->content_type, CN_STR("application/octet-stream")) ||
        is_sound(body->content_type))
        return false;
    while (i < body->data.len && strchr(" \t\r\n", body->data.ptr[i]) && body->data.ptr[i])
        i++;
    return i < body->data.len && body->data.ptr[i] == '{';
}

static const struct cn_part *
find_body(const struct cn_row *row)
{
    for (uint32_t i = row->n_parts; i-- > 0;)
        if (cn_str_eq(row->parts[i].name, CN_STR("body")))
            return &row->parts[i];
    return NULL;
}

int
cn_typed_take(struct cn_v2_request *v2, const struct cn_model_queue *queue, struct cn_arena *arena,
              struct cn_row *row, struct cn_error *err)
{
    const struct cn_model_config *config = cn_model_queue_config(queue);
    const char *model = cn_model_queue_name(queue);
    int rc = cn_v2_check(v2, config->io, model, arena, err);

    if (!rc && config->sequence_batching && v2->batch > 1)
        rc = cn_fail(err, CN_E_BAD_REQUEST,
                     "inference request to model '%s' must specify batch-size 1 due to "
                     "requirements of sequence batcher",
                     model);
    if (rc)
        return rc;
    row->n_parts = v2->n_inputs;
    row->parts = cn_arena_alloc(arena, sizeof(*row->parts) * (v2->n_inputs ? v2->n_inputs : 1));
    for (uint32_t i = 0; i < v2->n_inputs; i++) /* the model may be freed */
        row->parts[i] = cn_tensor_part(&v2->inputs[i], arena);
    for (uint32_t i = 0; i < v2->n_inputs; i++)
        row->parts[i].name = cn_arena_str(arena, row->parts[i].name);
    return 0;
}

int
cn_typed_read(struct cn_arena *arena, uint64_t json_bytes, const struct cn_model_queue *queue,
              struct cn_row *row, struct cn_error *err)
{
    const struct cn_model_config *config = cn_model_queue_config(queue);
    const char *model = cn_model_queue_name(queue);
    const struct cn_v2_limits limits = {.json_bytes = json_bytes};
    const struct cn_part *body = find_body(row);
    struct cn_v2_request v2;
    int rc;

    if (!body)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model '%s' is typed: send its inputs as a JSON object of names and values, "
                       "or its only input as bytes (application/octet-stream), not as a form",
                       model);
    rc = is_json(body) ? cn_v2_read_named(body->data, config->io, model, &limits, arena, &v2, err)
                       : cn_v2_read_raw(body->data, config->io, model, arena, &v2, err);
    if (!rc)
        rc = cn_typed_take(&v2, queue, arena, row, err);
    if (!rc && config->sequence_batching)
        rc = cn_v2_check_named(config->io, err);
    return rc;
}

/* Appends a set of tensors as JSON. */
static int
write_json(const struct cn_typed_answer *typed, struct cn_str body, struct cn_buf *out,
           struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_arena arena;
    uint32_t n;
    int rc;

    cn_arena_init(&arena);
    rc = cn_tensors_get(body, &arena, &tensors, &n, err);
    if (!rc)
        rc = cn_v2_write_named(tensors, n, out, err);
    if (typed->lines)
        cn_buf_puts(out, "\n");
    cn_arena_fini(&arena);
    if (!rc && out->failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the answer as JSON");
    return rc;
}

static struct cn_answer_box *
fail(struct cn_answer_box *box, const struct cn_error *err)
{
    box->answer.flags |= CN_ANSWER_FINAL;
    box->answer.error_code = err->code == CN_E_BAD_REQUEST || err->code == CN_E_OUT_OF_MEMORY
                                 ? err->code
                                 : CN_E_HANDLER_FAILED;
    box->answer.status = 0;
    return cn_answer_box_remake(box, CN_STR(""), cn_str_from(err->message));
}

/* Translates one piece of an answer. The content type of the first piece says whether the handler
 * answers with tensors. An empty first piece without one is dropped, and the next piece decides. */
struct cn_answer_box *
cn_typed_write(struct cn_typed_answer *typed, struct cn_answer_box *box)
{
    struct cn_answer *answer = &box->answer;
    const bool final = (answer->flags & CN_ANSWER_FINAL) != 0;
    struct cn_error err;
    struct cn_buf json;
    int rc = 0;

    if (answer->error_code)
        return box;
    if (answer->content_type.len)
        typed->tensors = cn_str_eq(answer->content_type, CN_STR(CN_TENSORS_TYPE));
    if (!final && answer->body.len == 0 &&
        (typed->tensors || (typed->declared && answer->content_type.len == 0))) {
        cn_answer_box_free(box); /* the first yield; later pieces show what the answer is */
        return NULL;
    }
    if (!typed->tensors && !(typed->decoupled && answer->body.len == 0))
        return box;
    typed->lines = !typed->is_whole && (typed->lines || typed->decoupled || !final);
    cn_buf_init(&json, 0);
    if (answer->body.len)
        rc = write_json(typed, answer->body, &json, &err);
    box = rc ? fail(box, &err)
             : cn_answer_box_remake(
                   box, typed->lines ? CN_STR("application/x-ndjson") : CN_STR("application/json"),
                   cn_buf_str(&json));
    cn_buf_fini(&json);
    return box;
}
