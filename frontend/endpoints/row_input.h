/* frontend/endpoints/row_input.h - sets the headers and parts that a handler gets of a request, by
 * TorchServe's rules. On the loop of the request. All bytes lie in its arena or its body. */
#ifndef CN_FRONTEND_ENDPOINTS_ROW_INPUT_H
#define CN_FRONTEND_ENDPOINTS_ROW_INPUT_H

#include "core/errors/error.h"
#include "proto/message.h"

struct cn_http_request;

/* Sets the row's headers to those of the request, after those that the server adds: explain: True,
 * and url_path with what follows the version. */
void cn_input_headers(struct cn_http_request *request, struct cn_row *row);

/* Sets the row's parts. First come the query's parameters, if the route allows them; then the
 * fields of a form, or the body as one part named "body" with its MIME type. A form-encoded body
 * without any "=" is not a form, since curl -d sends every body with that type. Returns
 * CN_E_BAD_REQUEST with a message that says what is wrong. */
int cn_input_parts(struct cn_http_request *request, struct cn_row *row, struct cn_error *err);

/* Returns the data of the last part of that name; empty if there is none. */
struct cn_str cn_input_find(const struct cn_row *row, struct cn_str name);

/* Turns "text/plain; charset=utf-8" into "text/plain". */
struct cn_str cn_input_mime_type(struct cn_str content_type);

#endif
