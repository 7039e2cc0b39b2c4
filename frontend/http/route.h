/* frontend/http/route.h - which function answers a method and a path.
 *
 * One table per interface (routes.c). A pattern's {name} takes one path segment, decoded after the
 * path was split, so that %2F does not split it; {name}:word takes one that ends so, and {*name} at
 * the end all the rest, at least a character. Slashes at the end of a path do not count. What a row
 * says for people goes into the API description (openapi.c).
 */
#ifndef CN_FRONTEND_HTTP_ROUTE_H
#define CN_FRONTEND_HTTP_ROUTE_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

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

/* What is special about a request that came this way. */
enum cn_route_flags {
    CN_ROUTE_SAGEMAKER = 1u << 0,  /* stateful sessions' headers count */
    CN_ROUTE_QUERY = 1u << 1,      /* query parameters are parts */
    CN_ROUTE_EXPLAIN = 1u << 2,    /* the handler is to explain */
    CN_ROUTE_TORCHSERVE = 1u << 6, /* errors in its form, also on a path of the v2 protocol */
    /* Only for the description. */
    CN_ROUTE_PREDICTS = 1u << 3, /* takes any body, answers what a handler says */
    CN_ROUTE_SLOW = 1u << 4,     /* may answer 202 or 206: it goes on */
    CN_ROUTE_PLAIN = 1u << 5,    /* always 200 */
};

struct cn_route {
    unsigned methods;    /* CN_HTTP_... bits */
    const char *pattern; /* "/predictions/{model_name}"; NULL: any path */
    /* Called once the request is there in full. It answers at once, or holds the request
     * (cn_http_request_hold) and answers later. */
    void (*handle)(struct cn_http_request *request);
    unsigned flags; /* enum cn_route_flags */
    /* For the description; `shown` 0: not in it. */
    unsigned shown;          /* CN_HTTP_... bits */
    const char *id;          /* operationId; the same in api_params.def */
    const char *summary;     /* a sentence without full stop */
    const char *answer_type; /* content type of a success; NULL: application/json */
};

struct cn_route_match {
    const struct cn_route *route;
    unsigned n_args;
    struct cn_str args[CN_ROUTE_ARGS_MAX]; /* in the arena */
    unsigned
        allowed; /* methods of that path by rows that did not match, or before the one that did */
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
