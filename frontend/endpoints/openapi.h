/* frontend/endpoints/openapi.h - describes an interface as OpenAPI 3.0.1, and shows the description
 * in a web page.
 *
 * The description is made, when it is asked for, from the route tables (routes.c), the parameters
 * (api_params.def) and the errors (errors.def). Any thread.
 */
#ifndef CN_FRONTEND_ENDPOINTS_OPENAPI_H
#define CN_FRONTEND_ENDPOINTS_OPENAPI_H

#include "core/memory/buf.h"
#include "frontend/http/route.h"

struct cn_http_request;

/* Writes the description of those routes of a table that have one. If `model` is not empty, only
 * routes that name a model are included, with the model's name in place of {model_name}. */
void cn_openapi_print(const struct cn_route *routes, struct cn_str model, struct cn_buf *out);

/* These are functions of routes: the description of the listener, the description of one model,
 * which must exist, and the web page. */
void cn_openapi_handle(struct cn_http_request *request);
void cn_openapi_handle_model(struct cn_http_request *request);
void cn_openapi_handle_page(struct cn_http_request *request);

/* Answers 405 to any method but OPTIONS for `/`, in a table whose last row would otherwise match
 * the path. */
void cn_openapi_refuse(struct cn_http_request *request);

#endif
