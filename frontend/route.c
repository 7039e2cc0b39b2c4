/* frontend/route.c - matching paths against a table. Any thread, no state. */
#include "frontend/route.h"

#include "frontend/http_checks.h"

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

/* The next segment of "/a/b"; false at the end. */
static bool
next_segment(struct cn_str *rest, struct cn_str *out)
{
    size_t len = 1;

    if (rest->len == 0 || rest->ptr[0] != '/')
        return false;
    while (len < rest->len && rest->ptr[len] != '/')
        len++;
    *out = (struct cn_str){rest->ptr + 1, len - 1};
    rest->ptr += len;
    rest->len -= len;
    return true;
}

/* Does `got` have the shape of `want`: a word, or {name} and what must follow it? */
static bool
segment_matches(struct cn_str want, struct cn_str got, struct cn_str *args, unsigned *n_args)
{
    const char *end = want.len && want.ptr[0] == '{' ? memchr(want.ptr, '}', want.len) : NULL;
    size_t tail;

    if (!end)
        return cn_str_eq(want, got);
    tail = (size_t)(want.ptr + want.len - end) - 1;
    if (got.len <= tail || memcmp(got.ptr + got.len - tail, end + 1, tail) != 0)
        return false;
    args[(*n_args)++] = (struct cn_str){got.ptr, got.len - tail};
    return true;
}

/* Does `path` have the shape of `pattern`? The raw arguments go to `args`. */
static bool
matches(struct cn_str pattern, struct cn_str path, struct cn_str *args, unsigned *n_args)
{
    struct cn_str want, got;

    *n_args = 0;
    while (next_segment(&pattern, &want)) {
        if (want.len > 2 && want.ptr[1] == '*') {
            if (path.len < 2)
                return false;
            args[(*n_args)++] = (struct cn_str){path.ptr + 1, path.len - 1};
            return true;
        }
        if (!next_segment(&path, &got) || !segment_matches(want, got, args, n_args))
            return false;
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
        if (route->pattern && !matches(cn_str_from(route->pattern), path, raw, &out->n_args))
            continue;
        if (!(route->methods & method)) {
            out->allowed |= route->methods;
            continue;
        }
        for (i = 0; i < out->n_args; i++) {
            if (!cn_http_decode(arena, raw[i], false, &out->args[i]))
                return cn_fail(err, CN_E_BAD_REQUEST, "the path has a broken escape");
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
