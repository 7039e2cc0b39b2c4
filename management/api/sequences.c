/* management/api/sequences.c - sequences are listed, shown, exported, imported and copied. Loop 0,
 * unless a comment says otherwise.
 *
 * A request becomes a struct asking, which travels: ask() sends it to the loop of the version's
 * queue, do_ask() gives the order to the queue, a worker answers it, on_answer() makes JSON or
 * takes the record there, and answered() is back on loop 0 and calls `next`. An export and an
 * import also visit the file thread, because the checksum of a large state takes its time. A fork
 * asks twice: it reads the record of one id, then writes it under another.
 *
 * The version is found anew before each question, because it may have been unregistered meanwhile.
 * A queue that was found lives at least until our message reaches its loop: a message that ends it
 * would come after ours.
 */
#include "management/api/sequences.h"

#include <string.h>

#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/api/exported_sequence.h"
#include "management/api/json/json_text.h"
#include "management/api/json/sequence_json.h"

/* The bytes of an exported sequence besides its record, with the longest names. */
#define ENVELOPE_SLACK_BYTES 4096

static void
log_event(const char *event, const char *model, const char *version, const char *id)
{
    char shown[4 * CN_SEQUENCE_ID_MAX + 3];

    cn_log(CN_LOG_INFO, "event=%s model=%s version=%s sequence=%s", event, model, version,
           cn_log_quote(id, strlen(id), shown, sizeof shown));
}

/* One request under way. A fork asks twice: it reads, then it writes. */
struct asking {
    struct cn_management *management;
    struct cn_model_queue *queue;
    struct cn_sequence_query order;
    char *model, *version;
    struct cn_model_config config;
    char *id;   /* the id that the question is about; for a list: where it goes on */
    char *more; /* list: the prefix; fork: the new id; else NULL */
    void (*next)(
        struct asking *op); /* called on loop 0 when the queue has answered without an error */
    enum cn_sequence_which which;
    json_t *value; /* the answer, made on the queue's loop */
    struct cn_sequence_info info;
    struct cn_buf bytes; /* export, fork: the record; then the exported file */
    struct cn_sequence_import import;
    /* import: what was decoded; its strings borrow from `import` */
    struct cn_exported_sequence envelope;
    struct cn_file_task task;
    struct cn_error err;
    cn_sequence_done_fn done; /* NULL for an export, which calls `exported` */
    cn_sequence_export_fn exported;
    void *ctx;
};

/* Answers with `value`, with the exported file in `bytes`, or with the error if there is one. Frees
 * the request. */
static void
finish(struct asking *op)
{
    struct cn_management *management = op->management;
    const struct cn_error *err = op->err.code ? &op->err : NULL;
    struct cn_str bytes = cn_buf_str(&op->bytes);

    if (err) {
        json_decref(op->value);
        op->value = NULL;
    }
    if (op->exported)
        op->exported(op->ctx, err ? NULL : &bytes, err);
    else
        op->done(op->ctx, op->value, err);
    cn_buf_fini(&op->bytes);
    cn_free(op->model);
    cn_free(op->version);
    cn_free(op->id);
    cn_free(op->more);
    cn_free(op);
    cn_management_op_end(management);
}

static void
answered(void *ctx)
{
    struct asking *op = ctx;

    if (op->order.err.code) {
        op->err = op->order.err;
        finish(op);
    } else {
        op->next(op);
    }
}

/* On the queue's loop. */
static void
take_page(struct asking *op, const struct cn_query_result *result)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < result->n_sequences; i++) {
        const struct cn_sequence_info *info = &result->sequences[i];
        struct cn_sequence_live live;
        bool is_live =
            !(info->flags & CN_INFO_CLOSED) && cn_model_queue_look(op->queue, info->id, &live);

        if (is_live || op->which != CN_SEQUENCES_LIVE)
            json_array_append_new(
                list, cn_sequence_json(info, is_live ? &live : NULL, &op->config, cn_wall_ms()));
    }
    op->value = json_object();
    json_object_set_new(op->value, "sequences", list);
    if (result->next.len || op->order.worker)
        json_object_set_new(op->value, "nextPageToken",
                            cn_page_token_json(op->order.worker, result->next));
}

/* On the queue's loop. */
static void
take_one(struct asking *op, const struct cn_query_result *result)
{
    struct cn_sequence_live live;
    bool is_live;

    if (result->n_sequences != 1)
        return;
    op->info = result->sequences[0];
    op->info.id = op->order.query.sequence_id;
    is_live = cn_model_queue_look(op->queue, op->info.id, &live);
    op->value = cn_sequence_json(&op->info, is_live ? &live : NULL, &op->config, cn_wall_ms());
    cn_buf_append_str(&op->bytes, result->record);
}

/* On the queue's loop. */
static void
on_answer(struct cn_sequence_query *order, const struct cn_query_result *result)
{
    struct asking *op = cn_container_of(order, struct asking, order);

    if (result && order->query.op == CN_QUERY_LIST)
        take_page(op, result);
    else if (result)
        take_one(op, result);
    cn_call_on(op->management->home, answered, op);
}

/* On the queue's loop. The queue still lives: the message that ends it would come after ours. */
static void
do_ask(void *ctx)
{
    struct asking *op = ctx;

    cn_model_queue_query(op->queue, &op->order);
}

/* Sends the question, from loop 0. The version is found anew, because it may be gone meanwhile. */
static void
ask(struct asking *op)
{
    struct cn_version *found;

    found = cn_management_find_version(op->management, op->model, op->version, &op->err);
    if (!found) {
        finish(op);
        return;
    }
    op->queue = found->queue;
    op->order.on_done = on_answer;
    cn_call_on(cn_model_queue_loop(found->queue), do_ask, op);
}

/* Makes a request. NULL: `done` or `exported` was called with an error. `id` NULL: it is for a
 * list. */
static struct asking *
ask_begin(struct cn_management *management, const char *name, const char *version, const char *id,
          cn_sequence_done_fn done, cn_sequence_export_fn exported, void *ctx)
{
    struct cn_version *found;
    struct asking *op;
    struct cn_error err;

    found = cn_management_find_version(management, name, version, &err);
    if (!found || (id && cn_sequence_id_check(id, &err))) {
        if (exported)
            exported(ctx, NULL, &err);
        else
            done(ctx, NULL, &err);
        return NULL;
    }
    op = cn_alloc(sizeof *op);
    op->management = management;
    op->model = cn_strdup(found->about.name);
    op->version = cn_strdup(found->about.version);
    op->config = found->about.config;
    op->id = id ? cn_strdup(id) : NULL;
    op->order.query.sequence_id = cn_str_from(op->id);
    op->next = finish;
    op->done = done;
    op->exported = exported;
    op->ctx = ctx;
    cn_buf_init(&op->bytes, 0);
    cn_management_op_begin(management);
    return op;
}

static void
set_name(struct asking *op)
{
    json_object_set_new(op->value, "modelName", cn_json_text(op->model));
    json_object_set_new(op->value, "modelVersion", cn_json_text(op->version));
}

static void named(struct asking *op);

/* Adds the state, which the worker has written as JSON. */
static void
stated(struct asking *op)
{
    json_t *state = op->bytes.len ? json_loadb(op->bytes.data, op->bytes.len,
                                               JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                                  : NULL;

    if (op->value)
        json_object_set_new(op->value, "stateValue", state ? state : json_null());
    else
        json_decref(state);
    named(op);
}

static void
named(struct asking *op)
{
    set_name(op);
    finish(op);
}

int
cn_sequence_which_parse(const char *word)
{
    static const char *const words[] = {"live", "open", "closed", "all"};

    for (int i = 0; i < 4; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

void
cn_sequence_list(struct cn_management *management, const char *name, const char *version,
                 const struct cn_sequence_list *list, cn_sequence_done_fn done, void *ctx)
{
    static const uint32_t flags[] = {CN_QUERY_OPEN, CN_QUERY_OPEN, CN_QUERY_CLOSED,
                                     CN_QUERY_OPEN | CN_QUERY_CLOSED};
    struct asking *op = ask_begin(management, name, version, NULL, done, NULL, ctx);
    struct cn_query *query;

    if (!op)
        return;
    query = &op->order.query;
    op->id = cn_alloc(CN_SEQUENCE_ID_MAX);
    op->more = cn_strdup(list->prefix ? list->prefix : "");
    op->which = list->which;
    op->next = named;
    query->op = CN_QUERY_LIST;
    query->flags = flags[list->which];
    query->limit = list->limit;
    query->min_idle_ms = list->min_idle_ms;
    query->prefix = cn_str_from(op->more);
    query->sequence_id.ptr = op->id;
    if (list->token && cn_page_token_parse(list->token, &op->order.worker, op->id,
                                           &query->sequence_id.len, &op->err))
        finish(op);
    else
        ask(op);
}

void
cn_sequence_show(struct cn_management *management, const char *name, const char *version,
                 const char *id, bool with_state, cn_sequence_done_fn done, void *ctx)
{
    struct asking *op = ask_begin(management, name, version, id, done, NULL, ctx);

    if (!op)
        return;
    op->order.query.op = CN_QUERY_READ;
    op->order.query.flags = with_state ? CN_QUERY_STATE : 0;
    op->next = with_state ? stated : named;
    ask(op);
}

/* --- export: on the file thread, since the checksum of a large state takes its time */

static void
work_export(struct cn_file_task *task)
{
    struct asking *op = cn_container_of(task, struct asking, task);
    struct cn_exported_sequence envelope = {
        .exported_wall_ms = cn_wall_ms(),
        .model = cn_str_from(op->model),
        .version = cn_str_from(op->version),
        .sequence_id = op->info.id,
        .generation = op->info.generation,
        .step = op->info.step,
        .opened_wall_ms = op->info.opened_wall_ms,
        .last_wall_ms = op->info.last_wall_ms,
        .schema = op->info.schema,
        .record = cn_buf_str(&op->bytes),
    };
    struct cn_buf whole;

    cn_buf_init(&whole, 0);
    cn_exported_sequence_encode(&envelope, &whole);
    if (whole.failed || op->bytes.failed)
        cn_fail(&op->err, CN_E_OUT_OF_MEMORY, "not enough memory to export a sequence of %zu bytes",
                op->bytes.len);
    cn_buf_fini(&op->bytes);
    op->bytes = whole;
}

static void
done_export(struct cn_file_task *task)
{
    struct asking *op = cn_container_of(task, struct asking, task);

    json_decref(op->value);
    op->value = NULL;
    if (!op->err.code)
        log_event("sequence_exported", op->model, op->version, op->id);
    finish(op);
}

static void
export_next(struct asking *op)
{
    op->task.work = work_export;
    op->task.done = done_export;
    cn_file_thread_run(op->management->files, &op->task);
}

static void
ask_record(struct asking *op)
{
    op->order.query.op = CN_QUERY_READ;
    op->order.query.flags = CN_QUERY_RECORD;
    op->order.query.max_bytes = op->management->config->max_envelope_bytes - ENVELOPE_SLACK_BYTES;
    ask(op);
}

void
cn_sequence_export(struct cn_management *management, const char *name, const char *version,
                   const char *id, cn_sequence_export_fn done, void *ctx)
{
    struct asking *op = ask_begin(management, name, version, id, NULL, done, ctx);

    if (!op)
        return;
    op->next = export_next;
    ask_record(op);
}

/* --- import and fork */

static void
put_from(struct asking *op, const char *status, const char *model, const char *version,
         const char *sequence, uint64_t step)
{
    json_t *from = json_object();

    json_object_set_new(from, "modelName", cn_json_text(model));
    json_object_set_new(from, "modelVersion", cn_json_text(version));
    json_object_set_new(from, "sequence", cn_json_text(sequence));
    json_object_set_new(from, "step", json_integer((json_int_t)step));
    json_object_set_new(op->value, "status", json_string(status));
    json_object_set_new(op->value, "from", from);
    set_name(op);
}

static void
imported(struct asking *op)
{
    const struct cn_exported_sequence *envelope = &op->envelope;
    char *model = cn_strndup(envelope->model.ptr, envelope->model.len);
    char *version = cn_strndup(envelope->version.ptr, envelope->version.len);
    char *sequence = cn_strndup(envelope->sequence_id.ptr, envelope->sequence_id.len);

    log_event("sequence_imported", op->model, op->version, op->id);
    put_from(op, "imported", model, version, sequence, envelope->step);
    cn_free(model);
    cn_free(version);
    cn_free(sequence);
    finish(op);
}

static void
work_import(struct cn_file_task *task)
{
    struct asking *op = cn_container_of(task, struct asking, task);
    struct cn_exported_sequence *envelope = &op->envelope;

    if (cn_exported_sequence_decode(op->import.bytes, envelope, &op->err))
        return;
    if (!op->import.any_model && !cn_str_eq(envelope->model, cn_str_from(op->model)))
        cn_fail(&op->err, CN_E_CONFLICT,
                "the sequence was exported from model %.*s %.*s, not from %s; if the handler of "
                "this model can use that state, import it with any_model=true",
                CN_STR_ARG(envelope->model), CN_STR_ARG(envelope->version), op->model);
}

static void
done_import(struct cn_file_task *task)
{
    struct asking *op = cn_container_of(task, struct asking, task);
    struct cn_query *query = &op->order.query;

    if (op->err.code) {
        finish(op);
        return;
    }
    query->op = CN_QUERY_WRITE;
    query->flags = op->import.replace ? CN_QUERY_REPLACE : 0;
    query->record = op->envelope.record;
    op->next = imported;
    ask(op);
}

void
cn_sequence_import(struct cn_management *management, const char *name, const char *version,
                   const char *id, const struct cn_sequence_import *import,
                   cn_sequence_done_fn done, void *ctx)
{
    struct asking *op = ask_begin(management, name, version, id, done, NULL, ctx);

    if (!op)
        return;
    op->import = *import;
    op->task.work = work_import;
    op->task.done = done_import;
    cn_file_thread_run(management->files, &op->task);
}

static void
forked(struct asking *op)
{
    log_event("sequence_forked", op->model, op->version, op->more);
    put_from(op, "forked", op->model, op->version, op->id, op->info.step);
    finish(op);
}

static void
fork_write(struct asking *op)
{
    struct cn_query *query = &op->order.query;

    json_decref(op->value);
    op->value = NULL;
    if (op->bytes.failed) {
        cn_fail(&op->err, CN_E_OUT_OF_MEMORY, "not enough memory to copy the sequence");
        finish(op);
        return;
    }
    *query = (struct cn_query){.op = CN_QUERY_WRITE,
                               .flags = CN_QUERY_FORK,
                               .sequence_id = cn_str_from(op->more),
                               .record = cn_buf_str(&op->bytes)};
    op->next = forked;
    ask(op);
}

void
cn_sequence_fork(struct cn_management *management, const char *name, const char *version,
                 const char *id, const char *to, cn_sequence_done_fn done, void *ctx)
{
    struct asking *op = ask_begin(management, name, version, id, done, NULL, ctx);

    if (!op)
        return;
    op->more = cn_strdup(to);
    op->next = fork_write;
    if (cn_sequence_id_check(to, &op->err))
        finish(op);
    else
        ask_record(op);
}
