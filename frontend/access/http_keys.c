/* frontend/access/http_keys.c - which key a request must show, and whether it does. On the loop of
 * the request. */
#include "frontend/access/http_keys.h"

#include <string.h>

#include "access/audit.h"
#include "access/certificate/certificate.h"
#include "access/keys.h"
#include "frontend/access/http_certificate.h"
#include "frontend/endpoints/management_http.h"
#include "frontend/endpoints/routes.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "frontend/websocket/ws_endpoint.h"
#include "management/management.h"

bool
cn_http_is_v2(const struct cn_http_request *request)
{
    return request->path.len > 4 && memcmp(request->path.ptr, "/v2/", 4) == 0;
}

bool
cn_http_is_preflight(const struct cn_http_request *request)
{
    return request->method == CN_HTTP_OPTIONS &&
           request->listener->shared->config->cors_allowed_origin &&
           cn_header_find(request->headers, request->n_headers, CN_STR("origin")) &&
           cn_header_find(request->headers, request->n_headers,
                          CN_STR("access-control-request-method"));
}

bool
cn_http_is_unsafe(const struct cn_http_request *request)
{
    return !(request->method & (CN_HTTP_GET | CN_HTTP_HEAD | CN_HTTP_OPTIONS));
}

static bool
is_below(struct cn_str path, struct cn_str folder)
{
    return path.len > folder.len && memcmp(path.ptr, folder.ptr, folder.len) == 0;
}

/* Is the path one word below the folder? More words may be another route: /try/1.0/predict is a
 * prediction of a model with the name try. */
static bool
is_in(struct cn_str path, struct cn_str folder)
{
    return is_below(path, folder) && !memchr(path.ptr + folder.len, '/', path.len - folder.len);
}

/* Is it a file of a page? The pages ask for the key themselves, so a browser must get them without.
 */
static bool
is_page(const struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;
    const struct cn_str path = request->path;

    if (config->page == CN_PAGE_OFF || !(request->method & (CN_HTTP_GET | CN_HTTP_HEAD)))
        return false;
    if (is_in(path, CN_STR("/page/")))
        return true;
    if (request->api->token != CN_TOKEN_MANAGEMENT)
        return is_in(path, CN_STR("/try/"));
    return (cn_str_eq(path, CN_STR("/")) && config->dialect != CN_DIALECT_TORCHSERVE) ||
           cn_str_eq(path, CN_STR("/page"));
}

/* Does the path need no key? Descriptions are public, and /token needs another key, which it checks
 * itself. */
static bool
is_open(const struct cn_http_request *request)
{
    const struct cn_str path = request->path;

    return (request->method == CN_HTTP_OPTIONS && cn_str_eq(path, CN_STR("/"))) ||
           cn_str_eq(path, CN_STR("/api-description")) || cn_str_eq(path, CN_STR("/docs")) ||
           is_page(request) ||
           (request->api->token == CN_TOKEN_MANAGEMENT && cn_str_eq(path, CN_STR("/token")));
}

/* Returns which of TorchServe's keys the request must show. Requests of the v2 protocol that change
 * the server need management's key, although they come by the inference interface. */
static enum cn_token_kind
needed_key(struct cn_http_request *request)
{
    struct cn_route_match match;

    if (cn_http_is_v2(request) && cn_http_is_unsafe(request) &&
        cn_route_find(request->api->routes, request->method, request->path, &request->arena, &match,
                      NULL) == 0 &&
        (match.route->flags & CN_ROUTE_ADMIN))
        return CN_TOKEN_MANAGEMENT;
    return request->api->token;
}

/* Is it a question about the server's health, which a probe with any key may ask? In TorchServe's
 * dialect, what follows /ping does not matter. */
static bool
is_health(const struct cn_http_request *request)
{
    return cn_str_eq(request->path, CN_STR("/ping")) || is_below(request->path, CN_STR("/ping/")) ||
           is_below(request->path, CN_STR("/v2/health/"));
}

/* Does TorchServe's dialect run a model for this path, whatever the method? */
static bool
runs_model(struct cn_http_request *request)
{
    struct cn_route_match match;

    return request->listener->shared->config->dialect == CN_DIALECT_TORCHSERVE &&
           cn_route_find(cn_torchserve_routes, request->method, request->path, &request->arena,
                         &match, NULL) == 0 &&
           (match.route->flags & CN_ROUTE_PREDICTS);
}

/* Returns which scopes suffice for the request. On the inference interface, reading what the v2
 * protocol says of models and of the server needs no particular scope; the list of the repository
 * is read with POST. */
static unsigned
needed_scopes(struct cn_http_request *request)
{
    const struct cn_http_api *api = request->api;
    const bool is_list = cn_str_eq(request->path, CN_STR("/v2/repository/index"));

    if (api->token == CN_TOKEN_INFERENCE && is_health(request))
        return CN_SCOPE_ANY;
    if (api->routes == cn_metrics_routes)
        return CN_SCOPE_OBSERVE | CN_SCOPE_MANAGE;
    if (needed_key(request) == CN_TOKEN_MANAGEMENT)
        return cn_http_is_unsafe(request) ? CN_SCOPE_MANAGE : CN_SCOPE_OBSERVE | CN_SCOPE_MANAGE;
    if (cn_http_is_v2(request) && (!cn_http_is_unsafe(request) || is_list) && !runs_model(request))
        return CN_SCOPE_ANY;
    return CN_SCOPE_INFER;
}

/* What the client has shown: a key, or the certificate with which it has connected. */
static void
take_credentials(const struct cn_http_request *request, const struct cn_certificate *certificate,
                 struct cn_credentials *out)
{
    const struct cn_header *header =
        cn_header_find(request->headers, request->n_headers, CN_STR("authorization"));

    cn_certificate_credentials(header ? &header->value : NULL, certificate, out);
}

int
cn_http_check_key(struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_http_shared *shared = request->listener->shared;
    const struct cn_certificate *certificate;
    struct cn_credentials shown;

    if (cn_http_is_preflight(request)) /* a browser asks without a key and without a certificate */
        return 0;
    if (cn_http_check_certificate(request, &certificate, err))
        return err->code;
    request->by_certificate = certificate != NULL;
    if (!cn_server_needs_keys(shared->config) || is_open(request) ||
        (!request->api->has_keys && !shared->config->keys))
        return 0;
    take_credentials(request, certificate, &shown);
    request->by_certificate = certificate && !shown.sent;
    if (cn_streams_is_handshake(request))
        return cn_streams_authorize(request, &shown, err);
    return cn_management_authorize(shared->management, needed_key(request), needed_scopes(request),
                                   &shown, &request->key, err);
}

/* The management API checks the model itself, because it reads the path itself. So does a
 * prediction whose path names no model. */
int
cn_http_check_model(const struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_route *route = request->match.route;
    const char *first = route->pattern ? strchr(route->pattern, '{') : NULL;
    const struct cn_str name = CN_STR("{model_name}");

    if (!request->key || route->handle == cn_management_http_handle ||
        (route->flags & CN_ROUTE_NO_MODEL) || ((route->flags & CN_ROUTE_PREDICTS) && !first))
        return 0;
    return cn_management_check_model(
        request->listener->shared->management, request->key,
        first && strncmp(first, name.ptr, name.len) == 0 ? request->match.args[0] : CN_STR(""),
        err);
}

void
cn_http_audit(struct cn_http_request *request)
{
    if (request->key && cn_http_is_unsafe(request) && needed_key(request) == CN_TOKEN_MANAGEMENT)
        cn_key_audit(request->key, request->method_word, request->path,
                     request->status ? (int)request->status : 499);
}
