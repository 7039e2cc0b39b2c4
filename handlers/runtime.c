/* handlers/runtime.c - keeps replies. Worker's thread.
 *
 * A reply is filled by a runtime and sent by the worker. Its buffers are bounded when it is made:
 * the content type and the headers by fixed sizes, the body and the pieces by the model's
 * answerMaxBytes. A buffer that would exceed its bound is marked as failed, which the worker turns
 * into an error; so a runtime need not check each append. */
#include "handlers/runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"

void
cn_reply_init(struct cn_reply *reply, size_t answer_max_bytes)
{
    memset(reply, 0, sizeof(*reply));
    cn_buf_init(&reply->content_type, 256);
    cn_buf_init(&reply->headers, 65536);
    cn_buf_init(&reply->body, answer_max_bytes);
}

static void
free_chunks(struct cn_reply *reply)
{
    for (uint32_t i = 0; i < reply->n_chunks; i++)
        cn_buf_fini(&reply->chunks[i].body);
    cn_free(reply->chunks);
    reply->chunks = NULL;
    reply->n_chunks = 0;
    reply->chunk_bytes = 0;
}

void
cn_reply_next(struct cn_reply *reply)
{
    free_chunks(reply);
    cn_buf_reset(&reply->body);
    reply->more = false;
    reply->rest_ms = 0;
}

void
cn_reply_fini(struct cn_reply *reply)
{
    free_chunks(reply);
    cn_buf_fini(&reply->content_type);
    cn_buf_fini(&reply->headers);
    cn_buf_fini(&reply->body);
}

void
cn_reply_fail(struct cn_reply *reply, int code, const char *fmt, ...)
{
    char message[CN_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args); /* before the reset: it may quote the body */
    va_end(args);

    free_chunks(reply);
    cn_buf_reset(&reply->content_type);
    cn_buf_reset(&reply->headers);
    reply->n_headers = reply->n_given = 0;
    reply->given_bytes = 0;
    reply->status = 0;
    reply->end_sequence = reply->stop_streams = reply->more = false;
    reply->error_code = code;

    /* The limit on answers must not cut the message. */
    cn_buf_fini(&reply->body);
    cn_buf_init(&reply->body, 0);
    cn_buf_puts(&reply->body, message);
}
