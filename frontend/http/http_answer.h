/* frontend/http/http_answer.h - gives answers to libmicrohttpd.
 *
 * Each function answers one request and runs on its loop. A connection that was suspended while the
 * request waited is resumed. When libmicrohttpd is done with the request already, because the
 * client left, the functions do nothing.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_ANSWER_H
#define CN_FRONTEND_HTTP_HTTP_ANSWER_H

#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_answer_box;
struct cn_error;
struct cn_http_request;

/* Answers with TorchServe's error body and the HTTP status that errors.def has for `code`. On a
 * path of the v2 protocol it answers with that protocol's error body. `retry_after_s` is sent with
 * statuses 429 and 503; 0 stands for one second. */
void cn_http_answer_error(struct cn_http_request *request, int code, const char *message,
                          uint32_t retry_after_s);
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
/* Remembers the headers about the sequence (its id, under the name by which the client sent it, and
 * its step) for the answer. Must be called before the answer is given. */
void cn_http_answer_echo(struct cn_http_request *request, const struct cn_answer_box *box);
/* Answers with status 200 and a file for download. `file_name` must be plain ASCII. `body` is
 * copied. */
void cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                         const char *file_name, struct cn_str body);
/* Gives one piece of a job's answer; takes over the box. The first piece decides the form: if it is
 * also the last one, the response has a Content-Length; otherwise a chunked response begins, with
 * one chunk for each piece. */
void cn_http_answer_piece(struct cn_http_request *request, struct cn_answer_box *box);

#endif
