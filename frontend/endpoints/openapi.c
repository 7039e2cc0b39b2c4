/* frontend/endpoints/openapi.c - makes the OpenAPI description from tables. Any thread, no state.
 *
 * Nothing of the description is written by hand, so it cannot disagree with the server: paths and
 * summaries are rows of the route tables, parameters are rows of api_params.def, and the errors of
 * each status are rows of errors.def. Routes with the same pattern become one path with several
 * operations.
 */
#include "frontend/endpoints/openapi.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/error.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/sequence_names.h"
#include "management/management.h"

#define NAME_MAX_BYTES 64 /* most bytes of a path parameter's name, and of an operation's id */

static const struct {
    const char *operation, *in, *name, *type;
    bool required;
    const char *otherwise, *text;
} params[] = {
#define CN_API_PARAM(operation, in, name, type, required, otherwise, text)                         \
    {operation, in, name, type, required, otherwise, text},
#include "frontend/endpoints/api_params.def"
#undef CN_API_PARAM
};

static const struct {
    const char *word;
    int status;
} errors[] = {
#define CN_ERROR(code, word, http, grpc, type) {word, http},
#include "core/errors/errors.def"
#undef CN_ERROR
};
#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

/* --- parts of an operation */

static json_t *
schema_of(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static json_t *
content(const char *type, json_t *schema)
{
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *
default_of(const char *type, const char *text)
{
    if (strcmp(type, "boolean") == 0)
        return json_boolean(strcmp(text, "true") == 0);
    if (strcmp(type, "integer") == 0)
        return json_integer(atoll(text));
    return json_string(text);
}

/* Returns the name under which a parameter is shown. api_params.def has the sequence headers by
 * their default names; an operator may have renamed them. They are shown with hyphens, because some
 * proxies drop names with underscores. */
static json_t *
shown_name(const char *name)
{
    static const char *const defaults[] = {"ts-request-sequence-id", "ts-request-sequence-start",
                                           "ts-request-sequence-end"};
    char shown[CN_SEQUENCE_NAME_MAX + 1];

    for (unsigned i = 0; i < CN_N_SEQUENCE_NAMES; i++) {
        if (strcmp(name, defaults[i]) != 0)
            continue;
        snprintf(shown, sizeof(shown), "%s", cn_sequence_name((enum cn_sequence_name)i).ptr);
        for (char *at = shown; *at; at++)
            if (*at == '_')
                *at = '-';
        return json_string(shown);
    }
    return json_string(name);
}

static void
add_table_params(json_t *list, const struct cn_route *route)
{
    bool predicts = (route->flags & CN_ROUTE_PREDICTS) != 0;

    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
        json_t *schema;

        if (strcmp(params[i].operation, "*") == 0 ? !predicts
                                                  : strcmp(params[i].operation, route->id) != 0)
            continue;
        schema = schema_of(params[i].type);
        if (*params[i].otherwise)
            json_object_set_new(schema, "default", default_of(params[i].type, params[i].otherwise));
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:b, s:s, s:o}", "in", params[i].in, "name",
                                        shown_name(params[i].name), "required", params[i].required,
                                        "description", params[i].text, "schema", schema));
    }
}

/* Describes a prediction's body: any bytes, or a form whose fields the handler interprets. */
static json_t *
request_body(void)
{
    static const char *const forms[] = {"multipart/form-data", "application/x-www-form-urlencoded"};
    json_t *types = json_object();

    json_object_update_new(types, content("application/json", json_object()));
    json_object_update_new(types, content("text/plain", schema_of("string")));
    json_object_update_new(types,
                           content("application/octet-stream",
                                   json_pack("{s:s, s:s}", "type", "string", "format", "binary")));
    for (size_t i = 0; i < 2; i++)
        json_object_update_new(
            types, content(forms[i], json_pack("{s:s, s:{s:s}}", "type", "object",
                                               "additionalProperties", "type", "string")));
    return json_pack("{s:s, s:o}", "description", "the handler's input", "content", types);
}

/* Describes the errors, grouped by status: "429" lists all words that Continuo-Error may have with
 * it. */
static void
add_errors(json_t *responses)
{
    for (size_t i = 0; i < N_ERRORS; i++) {
        char status[16], text[512];
        json_t *there;

        snprintf(status, sizeof(status), "%d", errors[i].status);
        there = json_object_get(responses, status);
        if (there) {
            snprintf(text, sizeof(text), "%s, %s",
                     json_string_value(json_object_get(there, "description")), errors[i].word);
            json_object_set_new(there, "description", json_string(text));
        } else {
            json_object_set_new(
                responses, status,
                json_pack("{s:s, s:o}", "description", errors[i].word, "content",
                          content("application/json",
                                  json_pack("{s:s}", "$ref", "#/components/schemas/Error"))));
        }
    }
}

static json_t *
responses_of(const struct cn_route *route)
{
    bool predicts = (route->flags & CN_ROUTE_PREDICTS) != 0;
    json_t *responses = json_object();
    json_t *good = json_pack("{s:s, s:o}", "description",
                             predicts ? "the handler's answer" : "success", "content",
                             content(predicts             ? "*/*"
                                     : route->answer_type ? route->answer_type
                                                          : "application/json",
                                     json_object()));

    json_object_set_new(responses, "200", good);
    if (predicts) /* a handler may choose any status */
        json_object_set_new(responses, "default",
                            json_pack("{s:s, s:o}", "description",
                                      "an answer whose status the handler chose", "content",
                                      content("*/*", json_object())));
    if (route->flags & CN_ROUTE_SLOW) {
        json_object_set_new(responses, "202", json_incref(good));
        json_object_set_new(responses, "206", json_incref(good));
    }
    if (!(route->flags & CN_ROUTE_PLAIN))
        add_errors(responses);
    return responses;
}

static json_t *
operation(const struct cn_route *route, const char *id, const json_t *path_params)
{
    json_t *list = json_copy((json_t *)(uintptr_t)path_params);
    json_t *made;

    add_table_params(list, route);
    made = json_pack("{s:s, s:s, s:o}", "operationId", id, "summary", route->summary, "parameters",
                     list);
    if (route->flags & CN_ROUTE_PREDICTS)
        json_object_set_new(made, "requestBody", request_body());
    json_object_set_new(made, "responses", responses_of(route));
    return made;
}

/* --- paths */

/* Appends a model's name, escaped for a URL. A brace would otherwise look like a parameter. */
static void
append_escaped(struct cn_buf *path, struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i], lower = (char)(c | 0x20);

        if ((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || strchr("-._~", c))
            cn_buf_append(path, &c, 1);
        else
            cn_buf_printf(path, "%%%02X", (unsigned)(unsigned char)c);
    }
}

/* Turns a pattern "/a/{x}/{*y}" into the path "/a/{x}/{y}" and the list of its parameters. `model`,
 * if not empty, replaces {model_name}; returns false when the pattern does not have that. */
static bool
read_pattern(const char *pattern, struct cn_str model, struct cn_buf *path, json_t *list)
{
    bool found = model.len == 0;

    for (const char *at = pattern, *end; *at; at = end) {
        char name[NAME_MAX_BYTES];

        if (*at != '{') {
            end = at + strcspn(at, "{");
            cn_buf_append(path, at, (size_t)(end - at));
            continue;
        }
        end = strchr(at, '}') + 1;
        at += at[1] == '*' ? 2 : 1;
        snprintf(name, sizeof(name), "%.*s", (int)(end - at) - 1, at);
        if (model.len && strcmp(name, "model_name") == 0) {
            append_escaped(path, model);
            found = true;
            continue;
        }
        cn_buf_printf(path, "{%s}", name);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:{s:s, s:i}}", "in", "path", "name",
                                              name, "required", true, "schema", "type", "string",
                                              "minLength", 1));
    }
    return found;
}

static void
add_route(json_t *paths, const struct cn_route *route, struct cn_str model)
{
    static const struct {
        unsigned bit;
        const char *word;
    } methods[] = {{CN_HTTP_GET, "get"},
                   {CN_HTTP_POST, "post"},
                   {CN_HTTP_PUT, "put"},
                   {CN_HTTP_DELETE, "delete"},
                   {CN_HTTP_OPTIONS, "options"}};
    json_t *list = json_array(), *there;
    struct cn_buf path;

    cn_buf_init(&path, 0);
    if (read_pattern(route->pattern, model, &path, list)) {
        cn_buf_append(&path, "", 1);
        there = json_object_get(paths, path.data);
        if (!there) {
            there = json_object();
            json_object_set_new(paths, path.data, there);
        }
        for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
            if (route->shown & methods[i].bit)
                json_object_set_new(there, methods[i].word, operation(route, route->id, list));
    }
    json_decref(list);
    cn_buf_fini(&path);
}

static json_t *
components(void)
{
    json_t *properties =
        json_pack("{s:{s:s, s:s}, s:{s:s, s:s}, s:{s:s}}", "code", "type", "integer", "description",
                  "the HTTP status", "type", "type", "string", "description",
                  "TorchServe's name for the error", "message", "type", "string");

    return json_pack("{s:{s:{s:s, s:o, s:[s, s, s]}}}", "schemas", "Error", "type", "object",
                     "properties", properties, "required", "code", "type", "message");
}

static int
append_piece(const char *piece, size_t len, void *ctx)
{
    return cn_buf_append(ctx, piece, len);
}

void
cn_openapi_print(const struct cn_route *routes, struct cn_str model, struct cn_buf *out)
{
    json_t *paths = json_object(), *all;

    for (const struct cn_route *route = routes; route->handle; route++)
        if (route->shown)
            add_route(paths, route, model);
    all = json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:o}", "openapi", "3.0.1", "info", "title",
                    "Continuo", "description",
                    "A model server for stateful inference with TorchServe's APIs", "version",
                    CN_VERSION, "paths", paths, "components", components());
    json_dump_callback(all, append_piece, out, JSON_INDENT(2));
    cn_buf_puts(out, "\n");
    json_decref(all);
}

/* --- requests */

static void
answer(struct cn_http_request *request, struct cn_str model)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    cn_openapi_print(request->listener->api->routes, model, &text);
    cn_http_answer_bytes(request, 200, "application/json", cn_buf_str(&text));
    cn_buf_fini(&text);
}

void
cn_openapi_handle(struct cn_http_request *request)
{
    answer(request, CN_STR(""));
}

void
cn_openapi_handle_model(struct cn_http_request *request)
{
    struct cn_error err;

    if (!cn_management_find(request->listener->shared->management, request->match.args[0],
                            request->match.args[1], &err))
        cn_http_answer_error(request, err.code, err.message, 0);
    else
        answer(request, request->match.args[0]);
}

/* The file docs_page.html, which the build turns into an array (cn_embed). */
extern const unsigned char cn_docs_page[];
extern const size_t cn_docs_page_bytes;

void
cn_openapi_handle_page(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 200, "text/html; charset=utf-8",
                         (struct cn_str){(const char *)cn_docs_page, cn_docs_page_bytes});
}

void
cn_openapi_refuse(struct cn_http_request *request)
{
    request->allow = "OPTIONS";
    cn_http_answer_error(request, CN_E_METHOD_NOT_ALLOWED,
                         "Requested method is not allowed, please refer to API document.", 0);
}
