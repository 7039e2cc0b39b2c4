/* frontend/http/transport/http_error.c - answers with errors: TorchServe's bodies and Continuo's,
 * and the headers that say what a client can do. Owned by the loop thread. */
#include <string.h>

#include "core/memory/buf.h"
#include "core/text/utf8.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "kserve/infer_answer.h"
#include "management/management.h"
#include "torchserve/errors/torchserve_error.h"

void
cn_http_add_error_headers(struct cn_http_request *request, int code, unsigned own_status,
                          uint32_t retry_after_s)
{
    cn_http_tell_text(request, CN_STR("Continuo-Error"), cn_error_info(code)->word);
    if (code == CN_E_KEY_REQUIRED) /* RFC 9110: each 401 says how to authenticate */
        cn_http_tell_text(request, CN_STR("WWW-Authenticate"), "Bearer");
    if (own_status == 429 || own_status == 503 || code == CN_E_CONTENDED)
        cn_http_tell_number(request, CN_STR("Retry-After"), retry_after_s ? retry_after_s : 1);
}

void
cn_http_answer_error_as(struct cn_http_request *request, int code, unsigned status,
                        const char *message, uint32_t retry_after_s)
{
    const struct cn_server_config *config = request->listener->shared->config;
    const struct cn_error_info *info = cn_error_info(code);
    const bool refused = status >= 400 && status <= 599;
    const unsigned own_status = refused ? status : (unsigned)info->http_status;
    struct cn_error_words words = {own_status, info->type, message};
    struct cn_buf body;

    if (!cn_http_is_answerable(request))
        return;
    if (config->torchserve_errors)
        cn_torchserve_error(code, refused, request->match.args[0], request->match.args[1],
                            &request->arena, &words);
    cn_buf_init(&body, 0);
    if (!config->torchserve_errors || code != CN_E_TOO_LARGE || refused)
        cn_error_json_as(words.status, words.type, words.message, request->expected_step, &body);
    cn_http_head_begin(request, words.status);
    if (body.len)
        cn_http_tell_text(request, CN_STR("Content-Type"), "application/json");
    cn_http_add_error_headers(request, code, own_status, retry_after_s);
    cn_http_head_send(request, cn_buf_str(&body), true);
    cn_buf_fini(&body);
}

void
cn_http_write_error(struct cn_http_request *request, int code, unsigned status,
                    struct cn_str message, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(code);
    const bool refused = status >= 400 && status <= 599;
    struct cn_error_words words = {refused ? status : (unsigned)info->http_status, info->type,
                                   cn_arena_str(&request->arena, message).ptr};

    if (request->listener->shared->config->torchserve_errors)
        cn_torchserve_error(code, refused, request->match.args[0], request->match.args[1],
                            &request->arena, &words);
    cn_buf_printf(out, "{\"code\":%u,\"type\":\"%s\",\"error\":\"%s\",\"message\":", words.status,
                  words.type, info->word);
    cn_v2_write_text(cn_utf8_is_valid(cn_str_from(words.message)) ? cn_str_from(words.message)
                                                                  : cn_str_from(info->word),
                     out);
    cn_buf_puts(out, "}");
}

void
cn_http_answer_error(struct cn_http_request *request, int code, const char *message,
                     uint32_t retry_after_s)
{
    const struct cn_route *route = request->match.route;
    const struct cn_str path = request->path;

    /* Clients of the v2 protocol read the member `error`. So they get that body from everything
     * that refuses the request, also before a route is found. */
    if (route && (route->flags & CN_ROUTE_TORCHSERVE)) {
        cn_http_answer_error_as(request, code, 0, message, retry_after_s);
        return;
    }
    if (cn_str_eq(path, CN_STR("/v2")) || (path.len > 4 && memcmp(path.ptr, "/v2/", 4) == 0)) {
        cn_v2_http_error(request, code, message);
        return;
    }
    cn_http_answer_error_as(request, code, 0, message, retry_after_s);
}
