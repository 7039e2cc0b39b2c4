/* frontend/http/http_answer.h - answers requests.
 *
 * Each function answers one request and runs on its loop. If the request has no connection any
 * more, because the client left, the functions do nothing.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_ANSWER_H
#define CN_FRONTEND_HTTP_HTTP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_error;
struct cn_http_conn;
struct cn_http_request;

/* Answers with TorchServe's error body and the HTTP status that errors.def has for `code`. On a
 * path of the v2 protocol it answers with that protocol's error body. `retry_after_s` is sent with
 * statuses 429 and 503; 0 stands for one second. */
void cn_http_answer_error(struct cn_http_request *request, int code, const char *message,
                          uint32_t retry_after_s);
/* Appends the error as one line of JSON, for a stream that has begun: {"code", "type", "error",
 * "message"}. `status` is the handler's own choice; 0 stands for the code's status. */
void cn_http_write_error(struct cn_http_request *request, int code, unsigned status,
                         struct cn_str message, struct cn_buf *out);
/* Answers with a complete JSON body, which is copied. `code` is the CN_E_... error that the body
 * reports; 0: it reports a success. */
void cn_http_answer_json(struct cn_http_request *request, unsigned status, int code,
                         struct cn_str body);
/* Answers with these bytes, which are copied. If `content_type` is NULL, the answer has no
 * Content-Type. */
void cn_http_answer_bytes(struct cn_http_request *request, unsigned status,
                          const char *content_type, struct cn_str body);
/* Answers with status 200 and a body that this function takes over from `body`. The body is
 * compressed if the options and the client allow it. */
void cn_http_answer_taken(struct cn_http_request *request, const char *content_type,
                          struct cn_buf *body);
/* Answers in the same way, with bytes of a box behind the body, which are not copied. Returns true
 * if it has taken over the body and the box. Otherwise, because the answer is to be compressed or
 * there is nobody to answer, it has appended the bytes to the body, and the caller goes on. */
bool cn_http_answer_with_box(struct cn_http_request *request, const char *content_type,
                             struct cn_buf *body, struct cn_str last, struct cn_answer_box *box);
/* Remembers the headers about the sequence (its id, under the name by which the client sent it, and
 * its step) for the answer. Must be called before the answer is given. */
void cn_http_answer_echo(struct cn_http_request *request, const struct cn_answer_box *box);
/* Answers with status 200 and a file of a page, with headers that let it load nothing from other
 * sites. `body` must stay in place for ever. It is compressed if the client accepts that. */
void cn_http_answer_page(struct cn_http_request *request, const char *content_type,
                         struct cn_str body);
/* Answers with status 200 and a file for download. `file_name` must be plain ASCII. `body` is
 * copied. */
void cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                         const char *file_name, struct cn_str body);
/* Answers with 101: the connection becomes something else, and is the caller's. `on_upgraded` gets
 * the request again when the answer has left, with the bytes that came behind the request; it is
 * never called if the client leaves before. The request lives until the caller ends the connection
 * with cn_http_upgrade_end(). Returns false if the answer cannot be given. */
typedef void (*cn_http_upgraded_fn)(struct cn_http_request *request, struct cn_str extra);
bool cn_http_answer_upgrade(struct cn_http_request *request, const struct cn_header *headers,
                            uint32_t n, cn_http_upgraded_fn on_upgraded);
/* Ends a connection that was upgraded, soon. Its descriptor must not be watched or used any
 * more. */
void cn_http_upgrade_end(struct cn_http_conn *conn);
/* Gives one piece of a job's answer; takes over the box. The first piece decides the form: if it is
 * also the last one, the response has a Content-Length; otherwise a chunked response begins, with
 * one chunk for each piece. */
void cn_http_answer_piece(struct cn_http_request *request, struct cn_answer_box *box);

#endif
