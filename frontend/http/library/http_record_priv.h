/* frontend/http/library/http_record_priv.h - the end of a request's record, for http_request.c.
 * Owned by the loop thread. */
#ifndef CN_FRONTEND_HTTP_LIBRARY_HTTP_RECORD_PRIV_H
#define CN_FRONTEND_HTTP_LIBRARY_HTTP_RECORD_PRIV_H

#include "frontend/http/http_request.h"

/* libmicrohttpd is done with the request: its holder is told, or the record is freed. */
void cn_http_record_let_go(struct cn_http_request *request);

#endif
