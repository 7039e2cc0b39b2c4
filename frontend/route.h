/* frontend/route.h - which function answers a method and a path.
 *
 * One table per interface (routes.c). A pattern's {} takes one path segment, decoded after the path
 * was split, so that %2F does not split it; {}:word takes one that ends so, and {*} at the end all
 * the rest, at least a character. Slashes at the end of a path do not count.
 */
#ifndef CN_FRONTEND_ROUTE_H
#define CN_FRONTEND_ROUTE_H

#include <stdint.h>

#include "core/arena.h"
#include "core/error.h"
#include "core/str.h"

struct cn_http_request;

enum cn_http_method {
    CN_HTTP_GET = 1u << 0,
    CN_HTTP_HEAD = 1u << 1,
    CN_HTTP_POST = 1u << 2,
    CN_HTTP_PUT = 1u << 3,
    CN_HTTP_DELETE = 1u << 4,
    CN_HTTP_PATCH = 1u << 5,
    CN_HTTP_OPTIONS = 1u << 6,
    CN_HTTP_OTHER_METHOD = 1u << 7,
    CN_HTTP_ANY_METHOD = 0xff,
};

#define CN_ROUTE_ARGS_MAX 3

/* What is special about a prediction that came this way; also in the API description. */
enum cn_route_flags {
    CN_ROUTE_SAGEMAKER = 1u << 0, /* stateful sessions' headers count */
    CN_ROUTE_QUERY = 1u << 1,     /* query parameters are parts */
    CN_ROUTE_EXPLAIN = 1u << 2,   /* the handler is to explain */
};

struct cn_route {
    unsigned methods;    /* CN_HTTP_... bits */
    const char *pattern; /* "/predictions/{}"; NULL: any path */
    /* Called once the request is there in full. It answers at once, or holds the request
     * (cn_http_request_hold) and answers later. */
    void (*handle)(struct cn_http_request *request);
    unsigned flags; /* enum cn_route_flags */
};

struct cn_route_match {
    const struct cn_route *route;
    unsigned n_args;
    struct cn_str args[CN_ROUTE_ARGS_MAX]; /* in the arena */
    unsigned allowed;                      /* methods of that path; with CN_E_METHOD_NOT_ALLOWED */
};

/* Methods are case-sensitive. */
unsigned cn_http_method_of(struct cn_str word);
/* "GET, HEAD" */
const char *cn_http_methods_text(struct cn_arena *arena, unsigned methods);

/* `path` as sent, without query; `table` ends with a row whose handle is NULL. CN_E_NOT_FOUND,
 * CN_E_METHOD_NOT_ALLOWED, or CN_E_BAD_REQUEST for a broken escape, with TorchServe's words. */
int cn_route_find(const struct cn_route *table, unsigned method, struct cn_str path,
                  struct cn_arena *arena, struct cn_route_match *out, struct cn_error *err);

#endif
