/* grpc/torchserve/grpc_step.c - one step of TorchServe's gRPC API: makes a job from a
 * PredictionsRequest, and a PredictionResponse from its answer. On the call's loop.
 *
 * Predictions, StreamPredictions and StreamPredictions2 share this code. A cn_rpc_step lies in an
 * arena of its own with the bytes of its message. It holds its call. It ends when its job has its
 * final answer and gRPC has sent all messages that point into it.
 *
 * `input` of the message is a map from names to bytes. Most entries are parts of the request for
 * the handler. Entries with the name of a header that controls a step (sequence id, start, end,
 * idempotency key, step number, request id, trace) are taken out as `controls`, because in a stream
 * one set of metadata serves many steps. For a single call the metadata count, too; in a stream
 * they may only name the sequence.
 *
 * The lane of a step is its sequence id. A stream sends the steps of one lane one after the other,
 * while other lanes go on.
 */
#include "grpc/torchserve/grpc_step.h"

#include "access/keys.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "frontend/intake/headers.h"
#include "frontend/intake/intake.h"
#include "grpc/error_status.h"
#include "grpc/protobuf_message.h"
#include "grpc/services.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"
#include "scheduler/sequence/generated_id.h"
#include "torchserve/errors/torchserve_error.h"

/* Numbers of the fields of PredictionsRequest and PredictionResponse in proto/inference.proto. */
enum { REQUEST_MODEL = 1, REQUEST_VERSION = 2, REQUEST_INPUT = 3, REQUEST_SEQUENCE = 4 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { RESPONSE_PREDICTION = 1, RESPONSE_SEQUENCE = 2, RESPONSE_STATUS = 3 };

/* --- reading */

static bool
is_control(struct cn_str name)
{
    return cn_sequence_name_find(name) != CN_N_SEQUENCE_NAMES ||
           cn_str_eq_header(name, CN_STR("idempotency-key")) || cn_intake_names_step(name) ||
           cn_str_eq_header(name, CN_STR("x-request-id")) ||
           cn_str_eq_nocase(name, CN_STR("traceparent")) ||
           cn_str_eq_nocase(name, CN_STR("tracestate"));
}

static int
not_a_request(struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "the body is not a valid PredictionsRequest message");
}

/* Names and ids go into logs, headers and URLs, so they must be UTF-8 without zero bytes. */
static int
check_text(struct cn_str text, const char *what, struct cn_error *err)
{
    if (!cn_utf8_is_valid(text))
        return cn_fail(err, CN_E_BAD_REQUEST, "%s is not UTF-8", what);
    if (text.len && memchr(text.ptr, '\0', text.len))
        return cn_fail(err, CN_E_BAD_REQUEST, "%s has a zero byte", what);
    return 0;
}

/* Finds an earlier entry with the same key. In a map of protobuf the last value counts. */
static struct cn_str *
find_value(struct cn_rpc_prediction *out, struct cn_str key)
{
    uint32_t i;

    for (i = 0; i < out->n_parts; i++)
        if (cn_str_eq(out->parts[i].name, key))
            return &out->parts[i].data;
    for (i = 0; i < out->n_controls; i++)
        if (cn_str_eq(out->controls[i].name, key))
            return &out->controls[i].value;
    return NULL;
}

static int
add_input(struct cn_rpc_prediction *out, struct cn_str entry, struct cn_error *err)
{
    struct cn_str key = CN_STR(""), value = CN_STR(""), *before;
    struct cn_rpc_field field;
    int rc;

    while ((rc = cn_rpc_next_field(&entry, &field)) > 0) {
        if (field.number == ENTRY_KEY && field.has_bytes)
            key = field.bytes;
        else if (field.number == ENTRY_VALUE && field.has_bytes)
            value = field.bytes;
    }
    if (rc < 0)
        return not_a_request(err);
    if (check_text(key, "a name in input", err))
        return err->code;
    before = find_value(out, key);
    if (before)
        *before = value;
    else if (is_control(key))
        out->controls[out->n_controls++] = (struct cn_header){key, value};
    else
        out->parts[out->n_parts++] = (struct cn_part){.name = key, .data = value};
    return 0;
}

/* Counts the inputs first, so that the arrays are allocated once, and finds the sequence, which is
 * known then even if something else is wrong. */
static int
count_inputs(struct cn_str bytes, struct cn_rpc_prediction *out, uint32_t *n, struct cn_error *err)
{
    struct cn_rpc_field field;
    int rc;

    *n = 0;
    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        *n += field.number == REQUEST_INPUT && field.has_bytes;
        if (field.number == REQUEST_SEQUENCE && field.has_bytes) {
            out->sequence_id = field.bytes;
            out->has_sequence_id = true;
        }
    }
    if (rc < 0)
        return not_a_request(err);
    if (*n > CN_RPC_INPUTS_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "input has %u entries; the limit is %d", *n,
                       CN_RPC_INPUTS_MAX);
    return 0;
}

int
cn_rpc_prediction_read(struct cn_str bytes, struct cn_arena *arena, struct cn_rpc_prediction *out,
                       struct cn_error *err)
{
    struct cn_rpc_field field;
    struct cn_error local;
    uint32_t n;

    err = err ? err : &local;
    memset(out, 0, sizeof(*out));
    if (count_inputs(bytes, out, &n, err))
        return err->code;
    out->parts = cn_arena_alloc(arena, (n + 1) * sizeof(*out->parts));
    out->controls = cn_arena_alloc(arena, (n + 1) * sizeof(*out->controls));
    while (cn_rpc_next_field(&bytes, &field) > 0) {
        if (!field.has_bytes)
            continue;
        if (field.number == REQUEST_MODEL) {
            out->model_name = field.bytes;
        } else if (field.number == REQUEST_VERSION) {
            out->model_version = field.bytes;
        } else if (field.number == REQUEST_INPUT && add_input(out, field.bytes, err)) {
            return err->code;
        }
    }
    if (check_text(out->model_name, "model_name", err) ||
        check_text(out->model_version, "model_version", err) ||
        check_text(out->sequence_id, "sequence_id", err))
        return err->code;
    if (out->model_name.len == 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "Parameter model_name is required.");
    return 0;
}

/* --- a step's life */

/* Refuses the step, which will not become a job, with the reason. */
static void
refuse(struct cn_rpc_step *step, const struct cn_error *why)
{
    step->refused = cn_rpc_keep_error(why, &step->arena);
    step->is_done = true;
}

struct cn_rpc_step *
cn_rpc_step_create(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_rpc_step *step;
    struct cn_arena arena;
    struct cn_error err;

    cn_arena_init(&arena);
    step = cn_arena_alloc(&arena, sizeof(*step));
    memset(step, 0, offsetof(struct cn_rpc_step, request_id));
    step->request_id[0] = '\0';
    step->arena = arena;
    step->call = call;
    step->boxes_end = &step->boxes;
    cn_list_init(&step->link);
    cn_grpc_call_hold(call);
    if (cn_grpc_message_keep(message, &step->arena, &step->message, &err) ||
        cn_rpc_prediction_read(step->message.bytes, &step->arena, &step->request, &err))
        refuse(step, &err);
    return step;
}

void
cn_rpc_step_destroy(struct cn_rpc_step *step)
{
    struct cn_grpc_call *call = step->call;
    struct cn_arena arena = step->arena;
    struct cn_answer_box *box, *next;

    for (box = step->boxes; box; box = next) {
        next = (struct cn_answer_box *)box->msg.next;
        cn_answer_box_free(box);
    }
    cn_list_remove(&step->link);
    cn_grpc_kept_free(&step->message);
    cn_arena_fini(&arena);
    cn_grpc_call_release(call);
}

/* --- a job */

int
cn_rpc_step_check_stream(const struct cn_header *headers, uint32_t n, struct cn_error *err)
{
    const struct cn_str names[] = {cn_sequence_name(CN_NAME_START), cn_sequence_name(CN_NAME_END),
                                   CN_STR("idempotency-key"), CN_STR("ts-request-sequence-step"),
                                   CN_STR("continuo-sequence-step")};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (cn_header_find(headers, n, names[i]))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "%s belongs to one step; send it in input, not as the stream's metadata",
                           names[i].ptr);
    return 0;
}

/* Makes the row's headers from the call's metadata and this message's controls. */
static void
merge_headers(struct cn_rpc_step *step)
{
    struct cn_row *row = &step->job.row;
    uint32_t n;
    const struct cn_header *metadata = cn_grpc_call_headers(step->call, &n);

    row->n_headers = n + step->request.n_controls;
    if (step->request.n_controls == 0) {
        row->headers = (struct cn_header *)(uintptr_t)metadata; /* a row is never changed */
        return;
    }
    row->headers = cn_arena_alloc(&step->arena, row->n_headers * sizeof(*row->headers));
    if (n)
        memcpy(row->headers, metadata, n * sizeof(*metadata));
    memcpy(row->headers + n, step->request.controls,
           step->request.n_controls * sizeof(*row->headers));
}

static void
choose_request_id(struct cn_rpc_step *step)
{
    const struct cn_rpc_prediction *request = &step->request;
    const struct cn_row *row = &step->job.row;
    const struct cn_header *given =
        cn_header_find(request->controls, request->n_controls, CN_STR("x-request-id"));

    if (!given)
        given = cn_header_find(row->headers, row->n_headers, CN_STR("x-request-id"));
    cn_intake_choose_request_id(given, step->request_id);
}

/* Finds the lane of a stream's step before anything is checked, because a step that is refused
 * keeps its place among the answers of its sequence, too. The first step that names a sequence sets
 * the stream's. What is wrong with the names, prepare() says. */
static void
find_lane(struct cn_rpc_step *step, struct cn_rpc_stream_id *stream)
{
    const struct cn_rpc_prediction *request = &step->request;
    const struct cn_header field = {CN_STR("sequence_id"), request->sequence_id};
    struct cn_sequence_headers sequence = {.start = false};
    struct cn_error err;

    cn_intake_read_id(&field, &sequence, &err);
    if (sequence.id.len == 0)
        cn_intake_read_sequence(request->controls, request->n_controls, &sequence, &err);
    if (stream->len == 0 && sequence.id.len > 0) {
        memcpy(stream->text, sequence.id.ptr, sequence.id.len);
        stream->len = sequence.id.len;
    }
    step->lane = sequence.id;
    if (step->lane.len == 0 && stream->len > 0)
        step->lane = cn_arena_str(&step->arena, (struct cn_str){stream->text, stream->len});
}

/* A step of a stream that names no sequence belongs to the stream's sequence. If the stream has
 * none yet, and the model opens sequences by itself, a new id is generated; it is then the
 * stream's. */
static void
apply_stream(struct cn_rpc_step *step, const struct cn_model_config *config,
             struct cn_rpc_stream_id *stream, struct cn_sequence_headers *sequence)
{
    if (sequence->id.len == 0 && stream->len > 0) {
        sequence->id = (struct cn_str){stream->text, stream->len};
    } else if (sequence->id.len == 0 && config->sequence_batching &&
               config->sequence_implicit_start) {
        sequence->id = cn_generated_id_make(step->new_id);
        sequence->start = true;
        step->job.row.flags |= CN_ROW_GENERATED_ID;
        memcpy(stream->text, sequence->id.ptr, sequence->id.len);
        stream->len = sequence->id.len;
    }
    /* The step needs a copy of its own, because the stream may end before the job. */
    sequence->id = cn_arena_str(&step->arena, sequence->id);
}

static int
read_sequence(struct cn_rpc_step *step, bool is_stream, struct cn_sequence_headers *out,
              struct cn_error *err)
{
    const struct cn_rpc_prediction *request = &step->request;
    const struct cn_header field = {CN_STR("sequence_id"), request->sequence_id};
    const struct cn_row *row = &step->job.row;
    int rc;

    if (is_stream) /* the metadata's id belongs to the stream, which read it when it began */
        rc = cn_intake_read_sequence(request->controls, request->n_controls, out, err);
    else
        rc = cn_intake_read_sequence(row->headers, row->n_headers, out, err);
    return rc ? rc : cn_intake_read_id(&field, out, err);
}

/* Checks everything that can be wrong before the step becomes a job. */
static int
prepare(struct cn_rpc_step *step, struct cn_rpc_stream_id *stream, const struct cn_job_ops *ops,
        struct cn_model_queue **queue, struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(step->call);
    struct cn_row *row = &step->job.row;
    struct cn_intake intake;

    merge_headers(step);
    choose_request_id(step);
    if (read_sequence(step, stream != NULL, &intake.sequence, err))
        return err->code;
    if (cn_rpc_check_model(step->call, step->request.model_name, err))
        return err->code;
    *queue = cn_management_find(host->management, step->request.model_name,
                                step->request.model_version, err);
    if (!*queue)
        return err->code;
    if (stream)
        apply_stream(step, cn_model_queue_config(*queue), stream, &intake.sequence);
    step->lane = intake.sequence.id;
    row->n_parts = step->request.n_parts;
    row->parts = step->request.parts;
    intake = (struct cn_intake){
        .queue = *queue,
        .loop = cn_grpc_call_loop(step->call),
        .ops = ops,
        .version = step->request.model_version,
        .request_id = cn_str_from(step->request_id),
        .sequence = intake.sequence,
        /* A stream's metadata must not describe a single step (cn_rpc_step_check_stream). */
        .headers = stream ? step->request.controls : row->headers,
        .n_headers = stream ? step->request.n_controls : row->n_headers,
        .client_deadline_ms = cn_grpc_call_deadline_ms(step->call),
        .connection = cn_grpc_call_connection(step->call),
        .left = cn_grpc_call_left(step->call),
        .client =
            cn_management_client(cn_grpc_call_key(step->call), cn_grpc_call_client(step->call)),
        .owner = cn_management_owner(host->management, cn_grpc_call_key(step->call)),
        .account = cn_key_account(cn_grpc_call_key(step->call)),
        .arena = &step->arena,
    };
    return cn_intake_fill(&step->job, &intake, err);
}

int
cn_rpc_step_submit(struct cn_rpc_step *step, const struct cn_job_ops *ops,
                   struct cn_rpc_stream_id *stream)
{
    struct cn_model_queue *queue = NULL;
    struct cn_error err;

    if (stream)
        find_lane(step, stream);
    if (step->refused)
        return step->refused->code;
    if (prepare(step, stream, ops, &queue, &err)) {
        refuse(step, &err);
        return err.code;
    }
    step->is_submitted = true;
    cn_model_queue_submit(queue, &step->job);
    return 0;
}

void
cn_rpc_step_cancel(struct cn_rpc_step *step)
{
    if (step->is_submitted && !step->is_done)
        cn_model_queue_cancel(step->job.queue, &step->job);
}

/* --- answers */

/* If the error is not the handler's own, replaces status and message by TorchServe's. The names are
 * the client's, because the answer may have waited for its turn, and the model may be gone. */
static void
say_as_torchserve(const struct cn_rpc_step *step, struct cn_arena *arena,
                  struct cn_rpc_failure *failure)
{
    const struct cn_rpc_prediction *request = &step->request;
    struct cn_error_words words = {0, "", failure->message};

    cn_torchserve_error(failure->code, false, request->model_name, request->model_version, arena,
                        &words);
    failure->message = words.message;
    failure->grpc_status = cn_torchserve_grpc_status(failure->code);
}

bool
cn_rpc_answer_failed(const struct cn_answer_box *box, struct cn_arena *arena,
                     struct cn_rpc_failure *out)
{
    const struct cn_answer *answer = &box->answer;

    if (answer->error_code == 0 && answer->status < 400)
        return false;
    *out = (struct cn_rpc_failure){
        .code = answer->error_code ? answer->error_code : CN_E_HANDLER_FAILED,
        .http_status = answer->status,
        .message = cn_rpc_status_text(answer->body, arena),
        .retry_after_s = box->retry_after_s,
        .expected_step = answer->error_code ? answer->step : 0,
    };
    return true;
}

bool
cn_rpc_step_failed(const struct cn_rpc_step *step, const struct cn_answer_box *box,
                   struct cn_arena *arena, struct cn_rpc_failure *out)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(step->call);

    if (!cn_rpc_answer_failed(box, arena, out))
        return false;
    if (host->config->torchserve_errors && out->http_status < 400)
        say_as_torchserve(step, arena, out);
    return true;
}

static void
free_box(void *box)
{
    cn_answer_box_free(box);
}

void
cn_rpc_lend(struct cn_grpc_outgoing *out, struct cn_answer_box *box)
{
    out->body = box->answer.body;
    out->release = free_box;
    out->arg = box;
}

/* Writes the response's head, which is all but the prediction's bytes. These are sent from the box,
 * which the outgoing message owns from then on. */
static void
make_outgoing(struct cn_arena *arena, struct cn_str sequence_id, struct cn_answer_box *box,
              struct cn_str status, struct cn_grpc_outgoing *out)
{
    char *head = cn_arena_alloc(arena, 3 * CN_RPC_FIELD_MAX + sequence_id.len + status.len),
         *at = head;

    memset(out, 0, sizeof(*out));
    if (sequence_id.len) {
        at = cn_rpc_put_head(at, RESPONSE_SEQUENCE, sequence_id.len);
        memcpy(at, sequence_id.ptr, sequence_id.len);
        at += sequence_id.len;
    }
    if (status.len) {
        at = cn_rpc_put_head(at, RESPONSE_STATUS, status.len);
        memcpy(at, status.ptr, status.len);
        at += status.len;
    }
    if (box && status.len == 0 && box->answer.body.len) {
        at = cn_rpc_put_head(at, RESPONSE_PREDICTION, box->answer.body.len);
        out->body = box->answer.body;
    }
    out->head = (struct cn_str){head, (size_t)(at - head)};
    if (box) {
        out->release = free_box;
        out->arg = box;
    }
}

void
cn_rpc_step_send(struct cn_rpc_step *step, struct cn_answer_box *box, struct cn_str status)
{
    struct cn_str id = box && box->sequence_id.len ? box->sequence_id : step->lane;
    struct cn_grpc_outgoing out;
    struct cn_arena arena;

    cn_arena_init(&arena);
    make_outgoing(&arena, id, box, status, &out);
    out.owner = step;
    cn_grpc_call_send(step->call, &out);
    cn_arena_fini(&arena);
}

void
cn_rpc_step_send_last(struct cn_grpc_call *call, struct cn_answer_box *box)
{
    const struct cn_grpc_status ok = {0};
    struct cn_grpc_outgoing out;

    make_outgoing(cn_grpc_call_arena(call), box->sequence_id, box, (struct cn_str){NULL, 0}, &out);
    cn_grpc_call_finish(call, &out, &ok);
}

void
cn_rpc_add_restarted(struct cn_grpc_call *call, const struct cn_answer *answer)
{
    const char *clock = cn_answer_restarted(answer);

    if (clock)
        cn_grpc_call_add_header(call, "continuo-sequence-restarted", cn_str_from(clock));
}

void
cn_rpc_tell_step(struct cn_grpc_call *call, const struct cn_answer *answer)
{
    char text[24];

    if (!answer->step || !(answer->error_code || cn_answer_committed(answer)))
        return;
    cn_grpc_call_add_header(
        call, answer->error_code ? "continuo-expected-step" : "continuo-sequence-step",
        (struct cn_str){text, (size_t)(cn_put_uint(answer->step, text) - text)});
}

/* An id may begin or end with a blank, and a value must not (RFC 9113, 8.2.1). The message has the
 * id in any case. */
static bool
may_be_metadata(struct cn_str id)
{
    return id.len > 0 && cn_header_is_printable(id) && id.ptr[0] != ' ' &&
           id.ptr[id.len - 1] != ' ';
}

void
cn_rpc_step_add_headers(struct cn_rpc_step *step, const struct cn_answer_box *box)
{
    cn_grpc_call_add_header(step->call, "x-request-id", cn_str_from(step->request_id));
    if (may_be_metadata(box->sequence_id))
        cn_grpc_call_add_header(step->call, CN_SEQUENCE_HEADER, box->sequence_id);
    if (box->answer.flags & CN_ANSWER_REPLAYED)
        cn_grpc_call_add_header(step->call, "continuo-replayed", CN_STR("true"));
    if (box->traceparent.len)
        cn_grpc_call_add_header(step->call, "traceparent", box->traceparent);
    cn_rpc_add_restarted(step->call, &box->answer);
    cn_rpc_tell_step(step->call, &box->answer);
}
