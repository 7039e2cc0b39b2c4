/* management/api/api_call.c - a request of the management API: its answers and its parameters. Loop
 * 0.
 *
 * Parameters come from the query or from a JSON object in the body. The first wrong one sets
 * call->err and the others are still read, so an endpoint checks once, with cn_api_params_fine(),
 * after it has read all of them. In TorchServe's dialect a wrong number in a query means the
 * default, as it does there.
 */
#include "management/api/api_call.h"

#include <errno.h>
#include <stdlib.h>

#include "core/memory/mem.h"
#include "management/api/json/json_text.h"

/* --- answers */

void
cn_api_end(struct cn_api_call *call)
{
    json_decref(call->body);
    cn_arena_fini(&call->arena);
    cn_free(call);
}

void
cn_api_reply(struct cn_api_call *call, int http_status, struct cn_buf *json)
{
    struct cn_api_request *request = call->request;

    cn_api_end(call);
    request->on_reply(request, http_status, cn_buf_str(json));
    cn_buf_fini(json);
}

void
cn_api_fail(struct cn_api_call *call, int code, const char *message)
{
    struct cn_buf json;

    cn_buf_init(&json, 0);
    cn_error_json(code, 0, message, &json);
    call->request->error_code = code;
    cn_api_reply(call, cn_error_info(code)->http_status, &json);
}

void
cn_api_answer(struct cn_api_call *call, int http_status, json_t *value)
{
    struct cn_buf json;

    cn_buf_init(&json, 0);
    cn_json_print(value, &json);
    cn_api_reply(call, http_status, &json);
}

void
cn_api_described(void *ctx, json_t *value, const struct cn_error *err)
{
    if (value)
        cn_api_answer(ctx, 200, value);
    else
        cn_api_fail(ctx, err->code, err->message);
}

void
cn_api_not_allowed(struct cn_api_call *call)
{
    cn_api_fail(call, CN_E_METHOD_NOT_ALLOWED,
                "Requested method is not allowed, please refer to API document.");
}

/* --- parameters: from the query, or from a JSON object in the body */

static const char *
body_text(struct cn_api_call *call, const char *name)
{
    json_t *value = json_object_get(call->body, name);

    if (!value || json_is_null(value))
        return NULL;
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        return cn_arena_printf(&call->arena, "%lld", (long long)json_integer_value(value));
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (!call->err.code)
        cn_fail(&call->err, CN_E_BAD_REQUEST, "%s must be a string, a whole number or a boolean",
                name);
    return NULL;
}

const char *
cn_api_param(struct cn_api_call *call, const char *name)
{
    const struct cn_api_request *request = call->request;
    uint32_t i;

    for (i = 0; i < request->n_query; i++)
        if (cn_str_eq(request->query[i].name, cn_str_from(name)))
            return cn_arena_strndup(&call->arena, request->query[i].value.ptr,
                                    request->query[i].value.len);
    return body_text(call, name);
}

/* Does TorchServe take its default for this text? It does so in a query for text that is not a
 * 32-bit number. Numbers that it accepts though nothing works with them, such as a timeout of 0 or
 * a batch of -7 rows, also mean the default here. */
static bool
means_default(const struct cn_api_call *call, const char *text, int64_t least)
{
    char *end;
    long long value;

    if (call->management->config->dialect != CN_DIALECT_TORCHSERVE || call->body)
        return false;
    errno = 0;
    value = strtoll(text, &end, 10);
    return errno || end == text || *end || value < INT32_MIN || value > INT32_MAX || value < least;
}

int64_t
cn_api_param_number(struct cn_api_call *call, const char *name, int64_t max)
{
    return cn_api_param_setting(call, name, INT32_MIN, max);
}

int64_t
cn_api_param_setting(struct cn_api_call *call, const char *name, int64_t least, int64_t max)
{
    const char *text = cn_api_param(call, name);
    char *end;
    long long value;

    if (!text || means_default(call, text, least))
        return -1;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > max) {
        if (!call->err.code)
            cn_fail(&call->err, CN_E_BAD_REQUEST,
                    "%s is \"%.100s\"; it must be a number from 0 to %lld", name, text,
                    (long long)max);
        return -1;
    }
    return value;
}

bool
cn_api_param_bool(struct cn_api_call *call, const char *name, bool otherwise)
{
    const char *text = cn_api_param(call, name);

    return text ? cn_str_eq_nocase(cn_str_from(text), CN_STR("true")) : otherwise;
}

bool
cn_api_params_fine(struct cn_api_call *call)
{
    if (!call->err.code)
        return true;
    cn_api_fail(call, call->err.code, call->err.message);
    return false;
}

/* --- the body */

static bool
is_json(struct cn_str content_type)
{
    struct cn_str word = content_type;
    size_t i;

    for (i = 0; i < word.len; i++)
        if (word.ptr[i] == ';' || word.ptr[i] == ' ')
            word.len = i;
    return cn_str_eq_nocase(word, CN_STR("application/json"));
}

int
cn_api_read_body(struct cn_api_call *call)
{
    struct cn_str body = call->request->body;
    json_error_t why;

    if (!is_json(call->request->content_type) || body.len == 0)
        return 0;
    call->body = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &why);
    if (!call->body)
        return cn_fail(&call->err, CN_E_BAD_REQUEST,
                       "the body is not valid JSON: %s (line %d, column %d)", why.text, why.line,
                       why.column);
    if (!json_is_object(call->body))
        return cn_fail(&call->err, CN_E_BAD_REQUEST,
                       "the body must be a JSON object of parameters");
    return 0;
}
