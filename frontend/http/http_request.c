/* frontend/http/http_request.c - reads a request, checks it, and gives it to its endpoint. Owned by
 * the loop thread.
 *
 * The checks are ordered by what they cost and by what they may reveal: first the size of the head,
 * then its form, then the key (http_keys.c), and only then is memory taken for the body. A request
 * that is refused before its body is read cannot leave its connection in a usable state, so the
 * connection ends with the answer (`close`), and for a moment the server drops what the client
 * still sends, so that the client can read the answer (http_discard.h). */
#include "frontend/http/http_request.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/access/http_certificate.h"
#include "frontend/access/http_keys.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/endpoints/routes.h"
#include "frontend/http/access_log.h"
#include "frontend/http/browser_checks.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/headers.h"
#include "frontend/websocket/ws_endpoint.h"
#include "frontend/websocket/ws_stream.h"
#include "kserve/access.h"
#include "management/management.h"
#include "scheduler/queue/job.h"

#define FIRST_CHUNK_BYTES 4096

/* Writes the access log's line. */
static void
log_access(const struct cn_http_request *request)
{
    struct cn_access access = {
        .client = request->conn->client[0] ? request->conn->client : NULL,
        .method = request->method_word,
        .path = request->path,
        .protocol = request->is_http_1_1 ? "HTTP/1.1" : "HTTP/1.0",
        .status = request->status ? request->status : 499,
        .us = cn_now_us() - request->begun_us,
        .bytes_in = request->body_len,
        .bytes_out = request->answer_bytes,
        .model = request->model,
        .version = request->version,
        .sequence = request->sequence,
        .step = request->step,
        .request_id = request->id,
    };

    cn_access_log_put(&access);
}

static void
complete(struct cn_http_request *request)
{
    if (cn_access_log_enabled())
        log_access(request);
    cn_http_audit(request);
    if (request->stream) /* the client left before the connection was a WebSocket */
        cn_ws_stream_destroy(request->stream);
    request->stream = NULL;
    cn_unread_done(request->listener->loop, &request->unread);
    request->conn->request = NULL;
    request->conn = NULL;
    cn_http_record_let_go(request);
}

/* Refuses a request before its body has been read. The connection cannot be used any further. */
static void
refuse(struct cn_http_request *request, int code, const char *message)
{
    request->close = true;
    request->conn->discards = true;
    cn_http_answer_error(request, code, message, 0);
}

/* Does this interface accept exported sequences, which may be larger than other bodies? */
static bool
takes_envelopes(const struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    return request->api->takes_envelopes && config->max_envelope_bytes > config->max_request_bytes;
}

static uint64_t
max_body_bytes(const struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (cn_http_is_v2(request))
        return config->max_v2_request_bytes;
    return takes_envelopes(request) ? config->max_envelope_bytes : config->max_request_bytes;
}

static void
refuse_too_large(struct cn_http_request *request, uint64_t len)
{
    const char *option = cn_http_is_v2(request)     ? "max-v2-request-size"
                         : takes_envelopes(request) ? "max-envelope-size"
                                                    : "max-request-size";
    uint64_t limit = max_body_bytes(request);
    const char *message =
        len ? cn_arena_printf(&request->arena,
                              "the body has %llu bytes, which exceeds the limit of %llu (%s)",
                              (unsigned long long)len, (unsigned long long)limit, option)
            : cn_arena_printf(&request->arena, "the body exceeds the limit of %llu bytes (%s)",
                              (unsigned long long)limit, option);

    refuse(request, CN_E_TOO_LARGE, message);
}

/* Several interfaces may share an address; the first one that has the path serves the request. */
static const struct cn_http_api *
choose_api(struct cn_http_request *request)
{
    const struct cn_http_api *api = request->listener->api;

    while (api->next && cn_route_find(api->routes, request->method, request->path, &request->arena,
                                      &request->match, NULL) == CN_E_NOT_FOUND)
        api = api->next;
    return api;
}

static void
begin(struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;
    struct cn_http_framing *framing = &request->framing;
    struct cn_error err;

    request->state = CN_REQUEST_BODY;
    if (request->conn->surplus) {
        refuse(request, CN_E_UNAVAILABLE,
               cn_arena_printf(&request->arena,
                               "more than %u connections are open (max-connections)",
                               config->max_connections));
        return;
    }
    if (request->head_bytes + request->listener->shared->answer_room >
        config->connection_memory_bytes) {
        refuse(request, CN_E_HEADERS_TOO_LARGE,
               cn_arena_printf(&request->arena,
                               "the URL and the headers take %zu bytes, which are too many for the "
                               "server's connection-memory of %u bytes",
                               request->head_bytes, (unsigned)config->connection_memory_bytes));
        return;
    }
    if (cn_str_eq(request->method_word, CN_STR("CONNECT"))) { /* its answer would have no length */
        refuse(request, CN_E_METHOD_NOT_ALLOWED,
               "CONNECT is not supported: this server is not a proxy");
        return;
    }
    if (request->has_folded) {
        refuse(request, CN_E_BAD_REQUEST,
               "a header continues on a second line, which is not allowed");
        return;
    }
    if (cn_http_check_url(request->path, &err) ||
        cn_http_check_headers(request->headers, request->n_headers, request->is_http_1_1, framing,
                              &err) ||
        cn_http_take_path(&request->path, request->headers, request->n_headers, &err)) {
        refuse(request, err.code, err.message);
        return;
    }
    request->close |= framing->closes;
    request->api = choose_api(request);
    if (cn_http_check_key(request, &err)) { /* before its body is taken */
        refuse(request, err.code, err.message);
        return;
    }
    if (!framing->has_length && !framing->chunked)
        return;
    if (framing->length > max_body_bytes(request)) {
        refuse_too_large(request, framing->length);
        return;
    }
    if (!cn_request_bytes_fit(framing->length)) {
        refuse(request, cn_request_bytes_refuse(&err), err.message);
        return;
    }
    if (framing->length > 0) {
        request->body = cn_arena_try_alloc(&request->arena, framing->length);
        if (!request->body) {
            refuse(request, CN_E_OUT_OF_MEMORY, "not enough memory for the body of this request");
            return;
        }
        request->body_cap = framing->length;
    }
    cn_http_conn_enter(request->conn, CN_PHASE_BODY);
}

/* Makes room for `len` more bytes of a body whose length was not announced. */
static bool
grow_body(struct cn_http_request *request, size_t len)
{
    size_t cap = request->body_cap ? request->body_cap : FIRST_CHUNK_BYTES;
    char *body;

    while (cap - request->body_len < len)
        cap *= 2; /* far from overflow: the sum is below max_body_bytes() */
    if (cap == request->body_cap)
        return true;
    body = cn_try_realloc(request->body, cap);
    if (!body)
        return false;
    request->body = body;
    request->body_cap = cap;
    request->body_on_heap = true;
    return true;
}

/* Counts the body among those of all requests. Returns false if there is no room for it, and
 * refuses it. */
static bool
count_body(struct cn_http_request *request, size_t len)
{
    struct cn_error err;

    if (cn_request_bytes_take(&request->body_bytes, len))
        return true;
    refuse(request, cn_request_bytes_refuse(&err), err.message);
    return false;
}

static void
take_body(struct cn_http_request *request, const char *bytes, size_t len)
{
    if (request->framing.chunked && len > max_body_bytes(request) - request->body_len) {
        refuse_too_large(request, 0);
        return;
    }
    if (!count_body(request, request->body_len + len))
        return;
    if (request->framing.chunked && !grow_body(request, len)) {
        refuse(request, CN_E_OUT_OF_MEMORY, "not enough memory for the body of this request");
        return;
    }
    cn_assert(len <= request->body_cap - request->body_len);
    memcpy(request->body + request->body_len, bytes, len);
    request->body_len += len;
}

static void
took(struct cn_http_request *request, size_t len)
{
    cn_assert(len <= request->body_cap - request->body_len);
    request->body_len += len;
    count_body(request, request->body_len);
}

/* Refuses a request of the v2 protocol that lacks the header which its group of requests needs.
 * Returns true when it was refused. */
static bool
is_restricted(struct cn_http_request *request)
{
    const char *pattern = request->match.route->pattern;
    struct cn_error err;

    if (!pattern || strncmp(pattern, "/v2", 3) != 0 ||
        cn_v2_access_check(CN_V2_HTTP, cn_v2_group_of_path(cn_str_from(pattern)), request->headers,
                           request->n_headers, &err) == 0)
        return false;
    cn_v2_http_error(request, err.code, err.message);
    return true;
}

/* Does this request manage the server: models, sequences, logs? */
static bool
is_administration(const struct cn_http_request *request)
{
    return request->api->token == CN_TOKEN_MANAGEMENT ||
           (request->match.route->flags & CN_ROUTE_ADMIN);
}

/* A page of another site must not change the state of sequences, which it could by simple requests
 * whose answers it cannot read. */
static int
check_step(const struct cn_http_request *request, struct cn_error *err)
{
    if (request->api->token != CN_TOKEN_INFERENCE ||
        !(cn_http_is_unsafe(request) || (request->match.route->flags & CN_ROUTE_PREDICTS)))
        return 0;
    return cn_browser_check_step(request->headers, request->n_headers,
                                 cn_http_allowed_origin(request), err);
}

/* A request that manages the server must not come from a page of another site, and neither must a
 * step. */
static int
check_foreign_sites(const struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_server_config *config = request->listener->shared->config;
    int rc = 0;

    if (!is_administration(request))
        return check_step(request, err);
    if (request->api->checks_hosts)
        rc = cn_browser_check_host(request->headers, request->n_headers,
                                   request->listener->shared->known_hosts, err);
    if (rc || !cn_http_is_unsafe(request))
        return rc;
    if (config->page == CN_PAGE_READ_ONLY && cn_browser_sent(request->headers, request->n_headers))
        return cn_fail(err, CN_E_READ_ONLY,
                       "browsers may change nothing here (--page read-only); use continuo-ctl or "
                       "curl on the server's machine");
    return cn_browser_check_origin(request->headers, request->n_headers,
                                   cn_http_allowed_origin(request), err);
}

/* Does no route of the interface name this path? Management's last route has no pattern and takes
 * every path, so it does not count. */
static bool
is_nowhere(const struct cn_http_request *request, int rc)
{
    const struct cn_route *route = request->match.route;

    return rc == CN_E_NOT_FOUND || (!rc && !route->pattern && !request->match.allowed);
}

/* Does this listener serve that interface, alone or with others? */
static bool
is_served_here(const struct cn_http_request *request, const struct cn_route *routes)
{
    const struct cn_http_api *api = request->listener->api;

    while (api && api->routes != routes)
        api = api->next;
    return api != NULL;
}

/* If another interface has the path, answers with a 404 that names that interface's port; a common
 * mistake is a management request to port 8080. With --torchserve-errors the answer has
 * TorchServe's words alone. */
static bool
refuse_wrong_port(struct cn_http_request *request)
{
    static const struct {
        const struct cn_route *routes;
        const char *place;
    } interfaces[] = {
        {cn_inference_routes, "inference API: port 8080, or the port of --inference-address"},
        {cn_management_routes, "management API: port 8081, or the port of --management-address"},
        {cn_metrics_routes, "metrics API: port 8082, or the port of --metrics-address"},
    };
    struct cn_route_match match;
    size_t i;

    if (request->listener->shared->config->torchserve_errors)
        return false;
    for (i = 0; i < sizeof interfaces / sizeof interfaces[0]; i++) {
        if (is_served_here(request, interfaces[i].routes) ||
            cn_route_find(interfaces[i].routes, request->method, request->path, &request->arena,
                          &match, NULL) ||
            !match.route->pattern)
            continue;
        cn_http_answer_error(request, CN_E_NOT_FOUND,
                             cn_arena_printf(&request->arena,
                                             "Requested resource is not found, please refer to API "
                                             "document. It belongs to the %s",
                                             interfaces[i].place),
                             0);
        return true;
    }
    return false;
}

/* In TorchServe's dialect a few paths of the inference interface mean something else. */
static int
find_route(struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (config->dialect == CN_DIALECT_TORCHSERVE && request->api->routes == cn_inference_routes &&
        cn_route_find(cn_torchserve_routes, request->method, request->path, &request->arena,
                      &request->match, err) == 0)
        return 0;
    return cn_route_find(request->api->routes, request->method, request->path, &request->arena,
                         &request->match, err);
}

static void
end(struct cn_http_request *request)
{
    struct cn_error err;
    int rc;

    request->state = CN_REQUEST_HANDLING;
    if (cn_http_is_preflight(request)) {
        cn_http_answer_bytes(request, 204, NULL, CN_STR(""));
        return;
    }
    rc = find_route(request, &err);
    if (is_nowhere(request, rc) && refuse_wrong_port(request))
        return;
    if (rc) {
        if (err.code == CN_E_METHOD_NOT_ALLOWED)
            request->allow = cn_http_methods_text(&request->arena, request->match.allowed);
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    if (is_restricted(request))
        return;
    if (cn_http_check_model(request, &err) || check_foreign_sites(request, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    request->match.route->handle(request);
    cn_assert(request->held || request->state > CN_REQUEST_PARKED);
}

const struct cn_http_calls cn_http_request_calls = {
    .begin = begin,
    .body = take_body,
    .took = took,
    .end = end,
    .refuse = refuse,
    .completed = complete,
};
