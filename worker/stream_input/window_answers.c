/* worker/stream_input/window_answers.c - makes one answer from the answers to all windows of a
 * request. Worker's thread.
 *
 * JSON answers become the elements of a list. Texts that are not JSON become strings in that list.
 * With `answers: bytes` the bodies follow each other with nothing in between. The outputs of typed
 * models are collected by name, and the windows become their first dimension.
 */
#include "worker/stream_input/window_answers.h"

#include <inttypes.h>

#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "proto/tensor.h"

/* One output of a typed model: the windows so far. */
struct cn_answer_column {
    struct cn_tensor all; /* its shape; the name is `name` */
    struct cn_buf name, data;
    uint32_t windows; /* how many of them had this output */
};

void
cn_answers_init(struct cn_window_answers *answers, enum cn_stream_answers form,
                const struct cn_model_io *io, uint64_t max_bytes)
{
    *answers = (struct cn_window_answers){.form = form, .io = io, .max_bytes = max_bytes};
    cn_buf_init(&answers->type, 0);
    cn_buf_init(&answers->headers, 0);
    cn_buf_init(&answers->body, max_bytes);
    cn_buf_init(&answers->pieces, max_bytes);
}

static void
drop_columns(struct cn_window_answers *answers)
{
    for (uint32_t i = 0; i < answers->n_columns; i++) {
        cn_buf_fini(&answers->columns[i].name);
        cn_buf_fini(&answers->columns[i].data);
    }
    cn_free(answers->columns);
}

void
cn_answers_fini(struct cn_window_answers *answers)
{
    cn_buf_fini(&answers->type);
    cn_buf_fini(&answers->headers);
    cn_buf_fini(&answers->body);
    cn_buf_fini(&answers->pieces);
    drop_columns(answers);
}

static int
too_large(const struct cn_window_answers *answers, struct cn_error *err)
{
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "the answers to %" PRIu32 " windows exceed the limit of %" PRIu64
                   " bytes (answerMaxBytes); send fewer samples in each request",
                   answers->n + 1, answers->max_bytes);
}

/* --- JSON and text --- */

/* Appends a text as a JSON string. */
static void
put_text(struct cn_buf *out, struct cn_str text)
{
    cn_buf_puts(out, "\"");
    for (size_t i = 0, from = 0; i <= text.len; i++) {
        const unsigned char c = i < text.len ? (unsigned char)text.ptr[i] : 0;

        if (i < text.len && c >= 0x20 && c != '"' && c != '\\')
            continue;
        cn_buf_append(out, text.ptr ? text.ptr + from : "", i - from);
        from = i + 1;
        if (i == text.len)
            break;
        if (c >= 0x20)
            cn_buf_printf(out, "\\%c", c);
        else
            cn_buf_printf(out, "\\u%04x", c);
    }
    cn_buf_puts(out, "\"");
}

static int
not_listed(const struct cn_window_answers *answers, struct cn_str type, struct cn_error *err)
{
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "the handler answered window %" PRIu32 " with '%.*s', which cannot be in a JSON "
                   "list; answer with JSON or text, or set stream.answers: bytes",
                   answers->n, CN_STR_ARG(type));
}

/* Adds a piece to the present window's answer. */
static int
add_piece(struct cn_window_answers *answers, struct cn_str type, struct cn_str piece,
          struct cn_error *err)
{
    struct cn_buf *out = answers->form == CN_STREAM_BYTES ? &answers->body : &answers->pieces;

    if (answers->form == CN_STREAM_LIST && cn_str_begins_nocase(type, CN_STR("application/json")) &&
        answers->n_pieces > 0)
        cn_buf_puts(out, ",");
    cn_buf_append_str(out, piece);
    answers->n_pieces++;
    return out->failed ? too_large(answers, err) : 0;
}

static int
add_pieces(struct cn_window_answers *answers, const struct cn_reply *reply, struct cn_error *err)
{
    const struct cn_str type = cn_buf_str(&reply->content_type);
    int rc = 0;

    if (reply->n_chunks && cn_str_eq(type, CN_STR(CN_TENSORS_TYPE)))
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "the handler answered a window with tensors in several pieces; a window has "
                       "one answer");
    for (uint32_t i = 0; rc == 0 && i < reply->n_chunks; i++)
        if (reply->chunks[i].body.len)
            rc = add_piece(answers, type, cn_buf_str(&reply->chunks[i].body), err);
    if (rc == 0 && answers->form == CN_STREAM_BYTES && answers->type.len == 0)
        cn_buf_append_str(&answers->type, type);
    return rc;
}

int
cn_answers_take_pieces(struct cn_window_answers *answers, struct cn_reply *reply,
                       struct cn_error *err)
{
    int rc = add_pieces(answers, reply, err);

    if (rc == 0)
        cn_reply_next(reply);
    return rc;
}

/* Adds the window's answer, which is in `pieces`, to the list. */
static int
add_element(struct cn_window_answers *answers, struct cn_str type, struct cn_error *err)
{
    struct cn_str text = cn_buf_str(&answers->pieces);
    struct cn_buf *out = &answers->body;

    cn_buf_puts(out, answers->n ? "," : "[");
    if (text.len == 0)
        cn_buf_puts(out, "null");
    else if (cn_str_begins_nocase(type, CN_STR("application/json")) && answers->n_pieces > 1)
        cn_buf_printf(out, "[%.*s]", CN_STR_ARG(text));
    else if (cn_str_begins_nocase(type, CN_STR("application/json")))
        cn_buf_append_str(out, text);
    else if (type.len && !cn_str_begins_nocase(type, CN_STR("text/")))
        return not_listed(answers, type, err);
    else if (!cn_utf8_is_valid(text))
        return not_listed(answers, CN_STR("text that is not UTF-8"), err);
    else
        put_text(out, text);
    return out->failed ? too_large(answers, err) : 0;
}

/* --- tensors --- */

static struct cn_answer_column *
find_column(struct cn_window_answers *answers, struct cn_str name)
{
    for (uint32_t i = 0; i < answers->n_columns; i++)
        if (cn_str_eq(cn_buf_str(&answers->columns[i].name), name))
            return &answers->columns[i];
    return NULL;
}

static struct cn_answer_column *
add_column(struct cn_window_answers *answers, uint32_t room, struct cn_str name)
{
    struct cn_answer_column *column;

    if (!answers->columns)
        answers->columns = cn_alloc(sizeof(*answers->columns) * room); /* up to CN_TENSORS_MAX */
    column = &answers->columns[answers->n_columns++];
    cn_buf_init(&column->name, 0);
    cn_buf_init(&column->data, answers->max_bytes);
    cn_buf_append_str(&column->name, name);
    return column;
}

static int
add_tensor(struct cn_window_answers *answers, struct cn_answer_column *column,
           const struct cn_tensor *tensor, struct cn_error *err)
{
    if (!column || column->windows != answers->n)
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "the handler answered window %" PRIu32 " %s output '%.*s', unlike the "
                       "windows before it, so they cannot be joined",
                       answers->n, column ? "twice with" : "with", CN_STR_ARG(tensor->name));
    if (!cn_tensor_stack(&column->all, tensor, answers->io && answers->io->max_batch_size > 0))
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "output '%.*s' of window %" PRIu32 " has another type or shape than in the "
                       "windows before it, so they cannot be joined",
                       CN_STR_ARG(tensor->name), answers->n);
    column->windows++;
    return cn_buf_append_str(&column->data, tensor->data) < 0 ? too_large(answers, err) : 0;
}

static int
add_tensors(struct cn_window_answers *answers, struct cn_str body, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_arena arena;
    uint32_t n = 0;
    int rc;

    cn_arena_init(&arena);
    rc = cn_tensors_get(body, &arena, &tensors, &n, err);
    if (rc)
        err->code = rc = CN_E_HANDLER_FAILED;
    if (!rc && answers->n && n != answers->n_columns)
        rc = cn_fail(err, CN_E_HANDLER_FAILED,
                     "the handler answered window %" PRIu32 " with %" PRIu32 " outputs, and the "
                     "windows before it with %" PRIu32,
                     answers->n, n, answers->n_columns);
    for (uint32_t i = 0; !rc && i < n; i++) {
        struct cn_answer_column *column = find_column(answers, tensors[i].name);

        if (!column && answers->n == 0)
            column = add_column(answers, n, tensors[i].name);
        rc = add_tensor(answers, column, &tensors[i], err);
    }
    cn_arena_fini(&arena);
    return rc;
}

/* --- a window, and the end --- */

/* Keeps what the reply's head says, and empties it for the next window's answer. */
static void
take_head(struct cn_window_answers *answers, struct cn_reply *reply)
{
    answers->status = reply->status ? reply->status : answers->status;
    if (reply->n_headers) {
        cn_buf_reset(&answers->headers);
        cn_buf_append_str(&answers->headers, cn_buf_str(&reply->headers));
        answers->n_headers = reply->n_headers;
    }
    cn_buf_reset(&reply->content_type);
    cn_buf_reset(&reply->headers);
    reply->n_headers = 0;
    reply->status = 0;
    cn_reply_next(reply);
}

static int
take(struct cn_window_answers *answers, struct cn_reply *reply, struct cn_error *err)
{
    const struct cn_str type = cn_buf_str(&reply->content_type);
    const bool tensors = cn_str_eq(type, CN_STR(CN_TENSORS_TYPE));
    int rc = add_pieces(answers, reply, err);

    if (!rc && reply->body.failed)
        rc = too_large(answers, err);
    if (!rc && answers->n && tensors != answers->tensors)
        rc = cn_fail(err, CN_E_HANDLER_FAILED,
                     "the handler answered some windows with tensors and others without, so they "
                     "cannot be joined");
    answers->tensors = tensors;
    if (rc || tensors)
        return rc ? rc : add_tensors(answers, cn_buf_str(&reply->body), err);
    if (reply->body.len || answers->n_pieces == 0)
        rc = add_piece(answers, type, cn_buf_str(&reply->body), err);
    return rc || answers->form == CN_STREAM_BYTES ? rc : add_element(answers, type, err);
}

int
cn_answers_take(struct cn_window_answers *answers, struct cn_reply *reply, struct cn_error *err)
{
    int rc = take(answers, reply, err);

    if (rc)
        return rc;
    answers->n++;
    answers->n_pieces = 0;
    cn_buf_reset(&answers->pieces);
    take_head(answers, reply);
    return 0;
}

static int
write_columns(struct cn_window_answers *answers, struct cn_buf *out, struct cn_error *err)
{
    cn_write_u32(out, answers->n_columns);
    for (uint32_t i = 0; i < answers->n_columns; i++) {
        struct cn_answer_column *column = &answers->columns[i];

        column->all.name = cn_buf_str(&column->name);
        column->all.data = cn_buf_str(&column->data);
        cn_tensors_put_one(out, &column->all);
    }
    return out->failed ? too_large(answers, err) : 0;
}

/* Writes the outputs that the model declares, with 0 windows. */
static int
write_none(const struct cn_window_answers *answers, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_model_io *io = answers->io;

    cn_write_u32(out, io->n_outputs);
    for (uint32_t i = 0; i < io->n_outputs; i++) {
        const struct cn_tensor_spec *spec = &io->outputs[i];
        struct cn_tensor tensor = {.name = spec->name, .type = spec->type, .rank = spec->rank + 1};

        for (uint32_t d = 0; d < spec->rank; d++)
            tensor.shape[d + 1] = spec->dims[d] < 0 ? 0 : spec->dims[d];
        cn_tensors_put_one(out, &tensor);
    }
    return out->failed ? too_large(answers, err) : 0;
}

int
cn_answers_finish(struct cn_window_answers *answers, struct cn_reply *reply, struct cn_error *err)
{
    const bool tensors = answers->n ? answers->tensors : answers->io != NULL;

    reply->status = answers->status;
    cn_buf_append_str(&reply->headers, cn_buf_str(&answers->headers));
    reply->n_headers += answers->n_headers;
    cn_buf_reset(&reply->body);
    if (tensors) {
        cn_buf_puts(&reply->content_type, CN_TENSORS_TYPE);
        return answers->n ? write_columns(answers, &reply->body, err)
                          : write_none(answers, &reply->body, err);
    }
    if (answers->form == CN_STREAM_BYTES) {
        if (answers->type.len)
            cn_buf_append_str(&reply->content_type, cn_buf_str(&answers->type));
        else
            cn_buf_puts(&reply->content_type, "application/octet-stream");
    } else {
        cn_buf_puts(&reply->content_type, "application/json");
        cn_buf_puts(&answers->body, answers->n ? "]" : "[]");
    }
    cn_buf_append_str(&reply->body, cn_buf_str(&answers->body));
    return answers->body.failed || reply->body.failed ? too_large(answers, err) : 0;
}
