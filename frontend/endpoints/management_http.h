/* frontend/endpoints/management_http.h - the management API over HTTP. */
#ifndef CN_FRONTEND_ENDPOINTS_MANAGEMENT_HTTP_H
#define CN_FRONTEND_ENDPOINTS_MANAGEMENT_HTTP_H

struct cn_http_request;

/* Handles every path of the management listener; management has its own table of routes. Loop 0. */
void cn_management_http_handle(struct cn_http_request *request);

#endif
