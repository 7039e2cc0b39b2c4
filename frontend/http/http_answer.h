/* frontend/http/http_answer.h - answers on their way to libmicrohttpd.
 *
 * One of these per request, on its loop; harmless when libmicrohttpd is done with the request
 * (the client is gone). A suspended connection is resumed.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_ANSWER_H
#define CN_FRONTEND_HTTP_HTTP_ANSWER_H

#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_answer_box;
struct cn_error;
struct cn_http_request;

/* TorchServe's error body with the status that errors.def has for `code`. `retry_after_s`: for 429
 * and 503; 0: one second. */
void cn_http_answer_error(struct cn_http_request *request, int code, const char *message,
                          uint32_t retry_after_s);
/* A JSON body that is complete; `code`: CN_E_... that it tells of, 0: none. It is copied. */
void cn_http_answer_json(struct cn_http_request *request, unsigned status, int code,
                         struct cn_str body);
/* `body` is copied. `content_type` NULL: none is said. */
void cn_http_answer_bytes(struct cn_http_request *request, unsigned status,
                          const char *content_type, struct cn_str body);
/* Status 200 with a body that is taken over, and compressed where options and client say so. */
void cn_http_answer_taken(struct cn_http_request *request, const char *content_type,
                          struct cn_buf *body);
/* The sequence's id under the header by which it came; before the answer. */
void cn_http_answer_echo(struct cn_http_request *request, const struct cn_answer_box *box);
/* Status 200 with a file to be kept under a name of plain ASCII. `body` is copied. */
void cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                         const char *file_name, struct cn_str body);
/* A piece of a job's answer; takes the box. The first one decides: final, then it is an ordinary
 * response; else a chunked one begins, a chunk a piece. */
void cn_http_answer_piece(struct cn_http_request *request, struct cn_answer_box *box);

#endif
