/* frontend/access/http_keys.h - which key a request must show, and whether it does.
 *
 * Keys are either TorchServe's three (--token-auth) or named ones (--keys). Both are checked here
 * before the body of a request is taken, and so is the client's certificate (--client-ca), which
 * may stand for a named key. On the loop of the request. */
#ifndef CN_FRONTEND_ACCESS_HTTP_KEYS_H
#define CN_FRONTEND_ACCESS_HTTP_KEYS_H

#include <stdbool.h>

#include "core/errors/error.h"

struct cn_http_request;

/* May this request change something? */
bool cn_http_is_unsafe(const struct cn_http_request *request);
/* Does the request belong to the v2 protocol? Its bodies are whole tensors, with a limit of their
 * own. */
bool cn_http_is_v2(const struct cn_http_request *request);
/* Is it a CORS preflight: a browser's question whether a script of another site may send a request
 * with this method or with these headers? */
bool cn_http_is_preflight(const struct cn_http_request *request);

/* Checks certificate and key, and keeps a named key in request->key. 0 also if the server requires
 * none, or if the request is a preflight. */
int cn_http_check_key(struct cn_http_request *request, struct cn_error *err);
/* May the named key use the model of the request's route? A key that is limited to some models may
 * use only paths that name one of them, and those that concern no model. */
int cn_http_check_model(const struct cn_http_request *request, struct cn_error *err);

/* The request is over: if it showed a named key, and was one that changes the server, writes a line
 * of the log with the key's name and the answer's status. The texts of the request must still be in
 * place. */
void cn_http_audit(struct cn_http_request *request);

#endif
