/* handlers/reply.c - fills a reply with what a handler returns, and checks it. Worker's thread.
 *
 * A handler is the model author's code. It may return any bytes, and its mistakes must not damage
 * the answers of other requests on the same connection. So header names and values are checked
 * against what HTTP allows, headers that frame a message are reserved to the server, and messages
 * are cut to one printable line, because they travel in headers and JSON, too.
 */
#include "handlers/reply.h"

#include <string.h>

#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "proto/wire.h"

#define NAME_MAX_BYTES 256u

/* These headers frame the message, and only the server may set them: a handler could otherwise end
 * an answer early. */
static bool
is_reserved(struct cn_str name)
{
    static const char *const names[] = {"content-length", "transfer-encoding", "connection",
                                        "content-type"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (cn_str_eq_header(name, cn_str_from(names[i])))
            return true;
    return false;
}

static bool
has_control(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < 0x20 || text.ptr[i] == 0x7f)
            return true;
    return false;
}

static int
head_is_out(const char *what, struct cn_error *err)
{
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "the %s of the answer was sent with its first piece: set it there", what);
}

void
cn_reply_begin(struct cn_reply *reply)
{
    cn_buf_reset(&reply->body);
    if (reply->head_out || reply->n_chunks) /* the head belongs to a piece, so it must stay */
        return;
    cn_buf_reset(&reply->content_type);
    reply->headers.len = reply->given_bytes;
    reply->headers.failed = 0;
    reply->n_headers = reply->n_given;
    reply->status = 0;
    reply->end_sequence = reply->stop_streams = false;
}

int
cn_reply_put_header(struct cn_reply *reply, struct cn_str name, struct cn_str value,
                    struct cn_error *err)
{
    if (reply->head_out)
        return head_is_out("headers", err);
    if (name.len > NAME_MAX_BYTES || !cn_str_is_token(name))
        return cn_fail(err, CN_E_HANDLER_FAILED, "'%.*s' is not the name of a header",
                       name.len > 100 ? 100 : (int)name.len, name.ptr ? name.ptr : "");
    if (is_reserved(name))
        return cn_fail(err, CN_E_HANDLER_FAILED, "header %.*s is set by the server%s",
                       CN_STR_ARG(name),
                       cn_str_eq_header(name, CN_STR("content-type")) ? " (use content_type)" : "");
    if (has_control(value))
        return cn_fail(err, CN_E_HANDLER_FAILED, "the value of header %.*s has a control character",
                       CN_STR_ARG(name));
    cn_write_str16(&reply->headers, name);
    cn_write_str32(&reply->headers, value);
    if (reply->headers.failed)
        return cn_fail(err, CN_E_HANDLER_FAILED, "the answer's headers are longer than %zu bytes",
                       reply->headers.max_bytes);
    reply->n_headers++;
    return 0;
}

int
cn_reply_set_content_type(struct cn_reply *reply, struct cn_str type, struct cn_error *err)
{
    if (reply->head_out)
        return head_is_out("content type", err);
    if (has_control(type))
        return cn_fail(err, CN_E_HANDLER_FAILED, "the content type has a control character");
    cn_buf_reset(&reply->content_type);
    if (cn_buf_append_str(&reply->content_type, type) < 0)
        return cn_fail(err, CN_E_HANDLER_FAILED, "the content type is longer than %zu bytes",
                       reply->content_type.max_bytes);
    return 0;
}

int
cn_reply_set_status(struct cn_reply *reply, long long status, struct cn_error *err)
{
    if (reply->head_out)
        return head_is_out("status", err);
    if (status < 200 || status > 599)
        return cn_fail(err, CN_E_HANDLER_FAILED, "status %lld is not from 200 to 599", status);
    reply->status = (uint16_t)status;
    return 0;
}

static int
too_large(const struct cn_buf *buf, struct cn_error *err)
{
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "the answer exceeds the limit of %zu bytes (answerMaxBytes)", buf->max_bytes);
}

int
cn_reply_check_body(const struct cn_reply *reply, struct cn_error *err)
{
    return reply->body.failed ? too_large(&reply->body, err) : 0;
}

int
cn_reply_add_chunk(struct cn_reply *reply, struct cn_str bytes, struct cn_error *err)
{
    uint32_t n = reply->n_chunks;

    if (reply->body.max_bytes && reply->chunk_bytes + bytes.len > reply->body.max_bytes)
        return too_large(&reply->body, err);
    if ((n & (n + 1)) == 0) { /* 0, 1, 3, 7 ...: full; becomes 1, 3, 7, 15 */
        struct cn_chunk *more = cn_try_realloc(reply->chunks, (2 * (size_t)n + 1) * sizeof(*more));

        if (!more)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a piece of the answer");
        reply->chunks = more;
    }
    cn_buf_init(&reply->chunks[n].body, reply->body.max_bytes);
    reply->n_chunks++;
    if (cn_buf_append_str(&reply->chunks[n].body, bytes) < 0)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a piece of the answer");
    reply->chunk_bytes += bytes.len;
    return 0;
}

int
cn_reply_body_to_chunk(struct cn_reply *reply, struct cn_error *err)
{
    int rc = cn_reply_check_body(reply, err);

    if (rc == 0)
        rc = cn_reply_add_chunk(reply, cn_buf_str(&reply->body), err);
    cn_buf_reset(&reply->body);
    return rc;
}

/* Copies a message as one line of printable UTF-8, because messages travel in JSON and in headers.
 * It is cut to the size of `out`. */
static void
clean_text(struct cn_str text, char *out, size_t out_bytes)
{
    const char *line_end = text.len ? memchr(text.ptr, '\n', text.len) : NULL;
    size_t n;
    bool utf8;

    if (line_end)
        text.len = (size_t)(line_end - text.ptr);
    n = cn_utf8_cut(text, out_bytes - 1);
    utf8 = cn_utf8_is_valid((struct cn_str){text.ptr, n});
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        out[i] = c < 0x20 || c == 0x7f ? ' ' : c >= 0x80 && !utf8 ? '?' : (char)c;
    }
    out[n] = '\0';
}

static int
code_of_status(long long status)
{
    switch (status) {
    case 0:
        return CN_E_HANDLER_FAILED;
    case 404:
        return CN_E_NOT_FOUND;
    case 409:
        return CN_E_CONFLICT;
    case 413:
        return CN_E_TOO_LARGE;
    }
    return status < 500 ? CN_E_BAD_REQUEST : CN_E_HANDLER_FAILED;
}

void
cn_reply_refuse(struct cn_reply *reply, long long status, struct cn_str message)
{
    char text[600];

    if (status < 400 || status > 599)
        status = 0;
    clean_text(message, text, sizeof(text));
    cn_reply_fail(reply, code_of_status(status), "%s%s", status ? "" : "Prediction failed: ", text);
    reply->status = (uint16_t)status;
}

struct cn_str
cn_row_body(const struct cn_row *row)
{
    static const char *const names[] = {"body", "data"};

    for (size_t n = 0; n < 2; n++)
        for (uint32_t i = row->n_parts; i-- > 0;) /* the last of a name counts, as in TorchServe */
            if (cn_str_eq(row->parts[i].name, cn_str_from(names[n])))
                return row->parts[i].data;
    return row->n_parts > 0 ? row->parts[0].data : CN_STR("");
}
