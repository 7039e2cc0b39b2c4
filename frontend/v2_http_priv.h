/* frontend/v2_http_priv.h - what the files of the v2 protocol over HTTP share. */
#ifndef CN_FRONTEND_V2_HTTP_PRIV_H
#define CN_FRONTEND_V2_HTTP_PRIV_H

#include "core/error.h"

struct cn_http_request;
struct cn_model_queue;

/* {"error": ...} with the status that errors.def has for `code`. */
void cn_v2_http_error(struct cn_http_request *request, int code, const char *message);
/* The typed model that the path names; NULL: why, in the protocol's words. */
struct cn_model_queue *cn_v2_http_find(struct cn_http_request *request, struct cn_error *err);

#endif
