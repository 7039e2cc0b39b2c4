/* frontend/endpoints/openapi.h - what an interface answers, as OpenAPI 3.0.1, and a page that shows
 * it.
 *
 * Made from the route tables (routes.c), the parameters (api_params.def) and the errors
 * (errors.def) when it is asked for. Any thread.
 */
#ifndef CN_FRONTEND_ENDPOINTS_OPENAPI_H
#define CN_FRONTEND_ENDPOINTS_OPENAPI_H

#include "core/memory/buf.h"
#include "frontend/http/route.h"

struct cn_http_request;

/* The description of a table's shown routes. `model` not empty: only of those that name a model,
 * with its name in place of {model_name}. */
void cn_openapi_print(const struct cn_route *routes, struct cn_str model, struct cn_buf *out);

/* Routes' functions: the listener's description; that of one model, which must exist; the page. */
void cn_openapi_handle(struct cn_http_request *request);
void cn_openapi_handle_model(struct cn_http_request *request);
void cn_openapi_handle_page(struct cn_http_request *request);

/* Another method than OPTIONS for `/`, where a table's last row would take it: 405. */
void cn_openapi_refuse(struct cn_http_request *request);

#endif
