/* frontend/intake/intake.c - the rules by which each request becomes a job. On the loop of the
 * request. */
#include "frontend/intake/intake.h"

#include <string.h>

#include "core/loop/loop.h"
#include "core/system/random.h"
#include "scheduler/queue/model_queue.h"

/* Computes the deadline. A worker may have to be started first, and then the call may take its
 * whole time, so the deadline allows for both. A client may ask for less. */
static uint64_t
deadline_of(const struct cn_intake *intake, const struct cn_model_config *config)
{
    const uint64_t own_ms =
        cn_loop_now_ms(intake->loop) +
        1000 * ((uint64_t)config->response_timeout_s + config->startup_timeout_s);

    return own_ms < intake->client_deadline_ms ? own_ms : intake->client_deadline_ms;
}

/* Reads the step's number and its key. A model without state may do a step twice, so it ignores
 * both, and they are not even checked. */
static int
read_once(struct cn_row *row, const struct cn_intake *intake, struct cn_error *err)
{
    const struct cn_header *headers = intake->headers;
    const uint32_t n = intake->n_headers;
    int rc = 0;

    if (intake->key_first)
        rc = cn_intake_read_key(headers, n, &row->idempotency_key, err);
    if (!rc)
        rc = cn_intake_read_step(headers, n, row, err);
    if (!rc && !intake->key_first)
        rc = cn_intake_read_key(headers, n, &row->idempotency_key, err);
    return rc;
}

/* Writes the owner before the id; the mark of an integer id stays the first byte. */
static int
set_owner(struct cn_job *job, const struct cn_intake *intake, struct cn_error *err)
{
    const struct cn_str id = job->row.sequence_id, name = intake->owner;
    const int mark = id.len && id.ptr[0] == CN_SEQUENCE_NUMBER;
    char *text;

    if (!name.len)
        return 0;
    job->owner.ptr = cn_arena_printf(intake->arena, "%.*s/", CN_STR_ARG(name));
    job->owner.len = name.len + 1;
    if (!id.len)
        return 0; /* the model queue makes one, if the model has sequences */
    if (id.len + job->owner.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the sequence id has %zu bytes; the limit for the key %.*s is %zu", id.len,
                       CN_STR_ARG(name), CN_SEQUENCE_ID_MAX - job->owner.len);
    text = cn_arena_printf(intake->arena, "%.*s%.*s%.*s", mark, id.ptr, CN_STR_ARG(job->owner),
                           (int)id.len - mark, id.ptr + mark);
    job->row.sequence_id = (struct cn_str){text, id.len + job->owner.len};
    return 0;
}

int
cn_intake_fill(struct cn_job *job, const struct cn_intake *intake, struct cn_error *err)
{
    const struct cn_model_config *config = cn_model_queue_config(intake->queue);
    struct cn_row *row = &job->row;
    int rc = 0;

    row->sequence_id = intake->sequence.id;
    row->flags |=
        (intake->sequence.start ? CN_ROW_START : 0u) | (intake->sequence.end ? CN_ROW_END : 0u);
    row->request_id = intake->request_id;
    job->ops = intake->ops;
    job->origin = intake->loop;
    job->named_version = intake->version.len > 0;
    job->any_version = intake->version.len == 0;
    job->deadline_ms = deadline_of(intake, config);
    job->connection = intake->connection;
    job->left = intake->left;
    job->client = intake->client;
    job->account = intake->account;
    job->begun_us = intake->begun_us;
    if (config->sequence_batching)
        rc = set_owner(job, intake, err);
    return rc == 0 && config->sequence_batching ? read_once(row, intake, err) : rc;
}

void
cn_intake_make_request_id(char out[CN_REQUEST_ID_NEW])
{
    cn_random_uuid(out);
}

void
cn_intake_choose_request_id(const struct cn_header *given, char out[CN_REQUEST_ID_MAX])
{
    const size_t len = given ? given->value.len : 0;
    size_t i;

    for (i = 0; i < len; i++)
        if (given->value.ptr[i] < '!' || given->value.ptr[i] > '~')
            break;
    if (len == 0 || len >= CN_REQUEST_ID_MAX || i < len) {
        cn_intake_make_request_id(out);
        return;
    }
    memcpy(out, given->value.ptr, len);
    out[len] = '\0';
}
