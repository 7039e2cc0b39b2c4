/* frontend/http/library/http_response_priv.h - responses of libmicrohttpd, for this folder and
 * http_answer.c. Owned by the loop thread. */
#ifndef CN_FRONTEND_HTTP_LIBRARY_HTTP_RESPONSE_PRIV_H
#define CN_FRONTEND_HTTP_LIBRARY_HTTP_RESPONSE_PRIV_H

#include <microhttpd.h>

#include "core/errors/panic.h"
#include "core/text/number.h"
#include "core/tuning/tuning.h"
#include "frontend/guard/head_text.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"

/* --- http_response.c --- */

static inline void
cn_http_add(struct MHD_Response *response, const char *name, const char *value)
{
    MHD_add_response_header(response, name, value);
}

/* Do headers that libmicrohttpd need not know go into the head as text (head_text.h)? With TLS they
 * do not, because libmicrohttpd itself hands the head to GnuTLS. */
static inline bool
cn_http_has_head_text(const struct cn_http_request *request)
{
    return cn_tuned(CN_TUNING_HEAD_TEXT) && !request->listener->is_tls;
}

/* Adds a header that libmicrohttpd need not know. `value` ends with a NUL. */
static inline void
cn_http_tell(struct MHD_Response *response, const struct cn_http_request *request,
             struct cn_str name, struct cn_str value)
{
    if (cn_http_has_head_text(request))
        cn_head_text_put(&request->conn->head_text, name, value);
    else
        cn_http_add(response, name.ptr, value.ptr);
}

/* Like cn_http_tell(), with a text; NULL: does nothing. */
void cn_http_tell_text(struct MHD_Response *response, const struct cn_http_request *request,
                       struct cn_str name, const char *value);

static inline void
cn_http_tell_number(struct MHD_Response *response, const struct cn_http_request *request,
                    struct cn_str name, uint64_t value)
{
    char text[24], *end = cn_put_uint(value, text);

    *end = '\0';
    if (value)
        cn_http_tell(response, request, name, (struct cn_str){text, (size_t)(end - text)});
}

/* Too many bytes wait for clients, and this client has been reading for the longest time. */
void cn_http_drop_unread(struct cn_unread *unread);

/* Counts bytes that the client has yet to read. */
static inline void
cn_http_wait_for_reader(struct cn_http_request *request, size_t bytes)
{
    request->unread.drop = cn_http_drop_unread;
    cn_unread_add(request->listener->loop, &request->unread, bytes);
}

/* Makes a response whose length is known. `mode` says whether libmicrohttpd copies `body`, frees
 * it, or only points to it. */
static inline struct MHD_Response *
cn_http_response_of(struct cn_http_request *request, struct cn_str body,
                    enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.len, (void *)(uintptr_t)body.ptr, mode);

    request->answer_bytes = body.len;
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    return response;
}

/* Has the request no answer yet, and is its connection still there? */
static inline bool
cn_http_is_answerable(const struct cn_http_request *request)
{
    return !request->mhd_done && request->state <= CN_REQUEST_PARKED;
}

/* Hands the response to libmicrohttpd; `next` is the request's state from here on. libmicrohttpd
 * may call back before MHD_queue_response returns: if the headers do not fit into the connection's
 * memory, the request is completed by then and must not be touched. */
void cn_http_queue(struct cn_http_request *request, unsigned status, struct MHD_Response *response,
                   enum cn_http_state next);

/* --- http_error.c --- */

/* Adds an error's headers. `own_status` is the status that Continuo itself uses: in TorchServe's
 * dialect 503 also stands for errors that no repetition heals (a handler's bug, a closed sequence),
 * and those must not have a Retry-After. */
void cn_http_add_error_headers(struct MHD_Response *response, const struct cn_http_request *request,
                               int code, unsigned own_status, uint32_t retry_after_s);
/* Answers with TorchServe's error body. `status` is the handler's own choice; 0 stands for the
 * code's status. */
void cn_http_answer_error_as(struct cn_http_request *request, int code, unsigned status,
                             const char *message, uint32_t retry_after_s);

/* --- http_stream.c --- */

/* Gives libmicrohttpd the next bytes of a stream. One call returns bytes of at most one piece, so
 * that each piece becomes a chunk of its own and no client waits for a chunk to fill up. A box that
 * was rewritten for its protocol (`remade`) counts as taken only when it is sent completely, and
 * then with the size that it had before: the scheduler's credit counts the handler's bytes. */
ssize_t cn_http_read_stream(void *ctx, uint64_t position, char *out, size_t room);

#endif
