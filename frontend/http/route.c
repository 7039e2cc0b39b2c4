/* frontend/http/route.c - matches paths against a table of routes. Any thread, no state.
 *
 * The table is searched from its start, and the first row with the path and the method wins, so
 * more specific rows come first. A linear search is fast enough: most patterns differ from a path
 * within a few characters, and the rows that are used most stand first. A row that has the path but
 * not the method only adds its methods to `allowed`; if no later row fits, the answer is 405 with
 * that list, and not 404.
 */
#include "frontend/http/route.h"

#include <string.h>

#include "frontend/http/http_checks.h"

static const struct {
    unsigned bit;
    struct cn_str word;
} methods_known[] = {
    {CN_HTTP_GET, CN_STR("GET")},         {CN_HTTP_HEAD, CN_STR("HEAD")},
    {CN_HTTP_POST, CN_STR("POST")},       {CN_HTTP_PUT, CN_STR("PUT")},
    {CN_HTTP_DELETE, CN_STR("DELETE")},   {CN_HTTP_PATCH, CN_STR("PATCH")},
    {CN_HTTP_OPTIONS, CN_STR("OPTIONS")},
};
#define N_METHODS (sizeof(methods_known) / sizeof(methods_known[0]))

unsigned
cn_http_method_of(struct cn_str word)
{
    size_t i;

    for (i = 0; i < N_METHODS; i++) {
        if (cn_str_eq(word, methods_known[i].word))
            return methods_known[i].bit;
    }
    return CN_HTTP_OTHER_METHOD;
}

const char *
cn_http_methods_text(struct cn_arena *arena, unsigned methods)
{
    const char *text = "";
    size_t i;

    for (i = 0; i < N_METHODS; i++) {
        if (methods & methods_known[i].bit)
            text = cn_arena_printf(arena, "%s%s%s", text, *text ? ", " : "",
                                   methods_known[i].word.ptr);
    }
    return text;
}

/* Takes the segment of a path that "{name}tail" stands for: everything up to the next slash,
 * without `tail`. Returns false when nothing is left for the name. */
static bool
take_argument(const char *tail, size_t tail_len, struct cn_str *path, struct cn_str *arg)
{
    const char *slash = memchr(path->ptr, '/', path->len);
    size_t len = slash ? (size_t)(slash - path->ptr) : path->len;

    if (len <= tail_len || memcmp(path->ptr + len - tail_len, tail, tail_len) != 0)
        return false;
    *arg = (struct cn_str){path->ptr, len - tail_len};
    path->ptr += len;
    path->len -= len;
    return true;
}

/* Does `path` match `pattern`? Stores the raw texts of the arguments in `args`. */
static bool
matches(const char *pattern, struct cn_str path, struct cn_str *args, unsigned *n_args)
{
    *n_args = 0;
    while (*pattern) {
        if (*pattern == '{') {
            const char *tail = strchr(pattern, '}') + 1;
            size_t tail_len = strcspn(tail, "/");

            if (pattern[1] == '*') {
                args[(*n_args)++] = path;
                return path.len > 0;
            }
            if (!take_argument(tail, tail_len, &path, &args[*n_args]))
                return false;
            ++*n_args;
            pattern = tail + tail_len;
        } else if (path.len && *path.ptr == *pattern) {
            path.ptr++;
            path.len--;
            pattern++;
        } else {
            return false;
        }
    }
    return path.len == 0;
}

int
cn_route_find(const struct cn_route *table, unsigned method, struct cn_str path,
              struct cn_arena *arena, struct cn_route_match *out, struct cn_error *err)
{
    struct cn_str raw[CN_ROUTE_ARGS_MAX];
    const struct cn_route *route;
    unsigned i;

    *out = (struct cn_route_match){0};
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    for (route = table; route->handle; route++) {
        out->n_args = 0;
        if (route->pattern && !matches(route->pattern, path, raw, &out->n_args))
            continue;
        if (!(route->methods & method)) {
            out->allowed |= route->methods;
            continue;
        }
        for (i = 0; i < out->n_args; i++) {
            if (!cn_http_decode(arena, raw[i], false, &out->args[i]))
                return cn_fail(err, CN_E_BAD_REQUEST,
                               "the path has an escape that is not %% and two hex digits");
        }
        out->route = route;
        return 0;
    }
    out->n_args = 0;
    if (out->allowed)
        return cn_fail(err, CN_E_METHOD_NOT_ALLOWED,
                       "Requested method is not allowed, please refer to API document.");
    return cn_fail(err, CN_E_NOT_FOUND,
                   "Requested resource is not found, please refer to API document.");
}
