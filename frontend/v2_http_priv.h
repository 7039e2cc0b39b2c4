/* frontend/v2_http_priv.h - what the files of the v2 protocol over HTTP share. */
#ifndef CN_FRONTEND_V2_HTTP_PRIV_H
#define CN_FRONTEND_V2_HTTP_PRIV_H

struct cn_http_request;

/* {"error": ...} with the status that errors.def has for `code`. */
void cn_v2_http_error(struct cn_http_request *request, int code, const char *message);

#endif
