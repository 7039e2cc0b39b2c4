/* frontend/typed.c - predictions of typed models. On the loop of the request. */
#include "frontend/typed.h"

#include "frontend/http_request.h"
#include "frontend/input.h"
#include "scheduler/job.h"
#include "scheduler/model_queue.h"
#include "v2/plain.h"

/* By its type; where that says nothing (curl's default is a form), by its first character. */
static bool
is_json(const struct cn_part *body)
{
    size_t i = 0;

    if (cn_str_eq_nocase(body->content_type, CN_STR("application/json")))
        return true;
    if (cn_str_eq_nocase(body->content_type, CN_STR("application/octet-stream")))
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
cn_typed_read(struct cn_http_request *request, const struct cn_model_queue *queue,
              struct cn_row *row, struct cn_error *err)
{
    const struct cn_model_config *config = cn_model_queue_config(queue);
    const char *model = cn_model_queue_name(queue);
    const struct cn_v2_limits limits = {.json_bytes =
                                            request->listener->shared->config->max_request_bytes};
    const struct cn_part *body = find_body(row);
    struct cn_arena *arena = &request->arena;
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
        rc = cn_v2_check(&v2, config->io, model, arena, err);
    if (!rc && config->sequence_batching && v2.batch > 1)
        rc = cn_fail(err, CN_E_BAD_REQUEST,
                     "inference request to model '%s' must specify batch-size 1 due to "
                     "requirements of sequence batcher",
                     model);
    if (rc)
        return rc;
    row->n_parts = v2.n_inputs;
    row->parts = cn_arena_alloc(arena, sizeof(*row->parts) * (v2.n_inputs ? v2.n_inputs : 1));
    for (uint32_t i = 0; i < v2.n_inputs; i++) /* names are the model's, which may go first */
        row->parts[i] = cn_tensor_part(&v2.inputs[i], arena);
    for (uint32_t i = 0; i < v2.n_inputs; i++)
        row->parts[i].name = cn_arena_str(arena, row->parts[i].name);
    return 0;
}

static int
write_json(struct cn_http_request *request, struct cn_answer_box *box, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_buf json;
    uint32_t n;
    int rc = cn_tensors_get(box->answer.body, &request->arena, &tensors, &n, err);

    if (rc)
        return rc;
    cn_buf_init(&json, 0);
    rc = cn_v2_write_named(tensors, n, &json, err);
    if (!rc && json.failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for the answer as JSON");
    if (!rc) { /* copied: the arena is what lives as long as the response */
        box->answer.body = cn_arena_str(&request->arena, cn_buf_str(&json));
        box->answer.content_type = CN_STR("application/json");
    }
    cn_buf_fini(&json);
    return rc;
}

void
cn_typed_write(struct cn_http_request *request, struct cn_answer_box *box)
{
    struct cn_answer *answer = &box->answer;
    struct cn_error err;

    if (!(answer->flags & CN_ANSWER_FINAL) || answer->error_code ||
        !cn_str_eq(answer->content_type, CN_STR(CN_TENSORS_TYPE)) ||
        !write_json(request, box, &err))
        return;
    answer->error_code = err.code == CN_E_UNIMPLEMENTED ? err.code : CN_E_HANDLER_FAILED;
    answer->status = 0;
    answer->body = cn_arena_str(&request->arena, cn_str_from(err.message));
}
