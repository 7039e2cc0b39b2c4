/* frontend/endpoints/management_http.c - passes HTTP requests to the management API. Loop 0.
 *
 * Management knows nothing of HTTP connections: it gets a struct cn_api_request with method, path,
 * query and body, and replies by a callback, sometimes minutes later. The request is held until
 * then. gRPC's management service uses the same API.
 */
#include "frontend/endpoints/management_http.h"

#include "frontend/endpoints/row_input.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "management/management.h"

struct api_call {
    struct cn_api_request api;
    struct cn_http_request *request;
};

static void
on_reply(struct cn_api_request *api, int http_status, struct cn_str json)
{
    struct cn_http_request *request = cn_container_of(api, struct api_call, api)->request;

    if (api->reply_type)
        cn_http_answer_file(request, api->reply_type, api->reply_file, json);
    else
        cn_http_answer_json(request, (unsigned)http_status, api->error_code, json);
    cn_http_request_release(request);
}

/* Decodes the query. Returns false when a name or value has a malformed escape. */
static bool
decode_query(struct cn_http_request *request, struct cn_api_request *api)
{
    struct cn_arena *arena = &request->arena;
    uint32_t i;

    api->n_query = request->n_query;
    api->query = cn_arena_alloc(arena, sizeof(*api->query) * request->n_query);
    for (i = 0; i < request->n_query; i++) {
        if (!cn_http_decode(arena, request->query[i].name, true, &api->query[i].name) ||
            !cn_http_decode(arena, request->query[i].value, true, &api->query[i].value))
            return false;
    }
    return true;
}

void
cn_management_http_handle(struct cn_http_request *request)
{
    struct api_call *call = cn_arena_alloc(&request->arena, sizeof(*call));
    const struct cn_header *type, *token;

    memset(call, 0, sizeof(*call));
    call->request = request;
    if (!decode_query(request, &call->api) ||
        !cn_http_decode(&request->arena, request->path, false, &call->api.path)) {
        cn_http_answer_error(request, CN_E_BAD_REQUEST,
                             "the URL has %00 or an escape that is not % and two hex digits", 0);
        return;
    }
    call->api.method = cn_arena_str(&request->arena, request->method_word);
    type = cn_header_find(request->headers, request->n_headers, CN_STR("content-type"));
    if (type)
        call->api.content_type = cn_arena_str(&request->arena, cn_input_mime_type(type->value));
    token = cn_header_find(request->headers, request->n_headers, CN_STR("authorization"));
    if (token)
        call->api.authorization = cn_arena_str(&request->arena, token->value);
    call->api.key = request->key;
    call->api.body = cn_http_request_body_str(request);
    call->api.on_reply = on_reply;
    cn_http_request_hold(request, call, NULL);
    cn_management_handle(request->listener->shared->management, &call->api);
}
