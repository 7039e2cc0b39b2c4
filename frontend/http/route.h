/* frontend/http/route.h - finds the function that answers a method and a path.
 *
 * Each interface has one table (routes.c). In a pattern, {name} stands for one path segment, which
 * is decoded after the path was split, so that %2F does not split it; {name}:word stands for a
 * segment that ends with :word; and {*name}, at the end, stands for the rest of the path, which has
 * at least one character. Slashes at the end of a path are ignored. The texts of a row go into the
 * API description (openapi.c).
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

/* What is special about a request that came by this route. */
enum cn_route_flags {
    CN_ROUTE_SAGEMAKER = 1u << 0, /* the headers of SageMaker's stateful sessions are read */
    CN_ROUTE_QUERY = 1u << 1,     /* query parameters become parts of the input */
    CN_ROUTE_EXPLAIN = 1u << 2,   /* the handler is asked to explain */
    /* errors have TorchServe's form, also on a path of the v2 protocol */
    CN_ROUTE_TORCHSERVE = 1u << 6,
    /* other methods than GET, HEAD and OPTIONS change the server: they need the key for management,
     * on any interface */
    CN_ROUTE_ADMIN = 1u << 7,
    /* concerns no model: a key that is limited to some models may use it */
    CN_ROUTE_NO_MODEL = 1u << 8,
    /* The next flags matter only for the API description. */
    CN_ROUTE_PREDICTS = 1u << 3, /* accepts any body, and answers what the handler returns */
    CN_ROUTE_SLOW = 1u << 4,     /* may answer 202 or 206 while the work goes on */
    CN_ROUTE_PLAIN = 1u << 5,    /* always 200 */
};

struct cn_route {
    unsigned methods;    /* CN_HTTP_... bits */
    const char *pattern; /* "/predictions/{model_name}"; NULL: any path */
    /* Called when the request is complete. It answers at once, or it holds the request
     * (cn_http_request_hold) and answers later. */
    void (*handle)(struct cn_http_request *request);
    unsigned flags; /* enum cn_route_flags */
    /* For the API description. If `shown` is 0, the route is not in it. */
    unsigned shown;          /* CN_HTTP_... bits */
    const char *id;          /* operationId; api_params.def has the same one */
    const char *summary;     /* a sentence without full stop */
    const char *answer_type; /* content type of a success; NULL: application/json */
};

struct cn_route_match {
    const struct cn_route *route;
    unsigned n_args;
    struct cn_str args[CN_ROUTE_ARGS_MAX]; /* in the arena */
    unsigned allowed; /* methods that rows with this path allow, if none of them allows this one */
};

/* Returns the CN_HTTP_... bit of a method's name; names are case-sensitive. */
unsigned cn_http_method_of(struct cn_str word);
/* Writes method bits as the value of an Allow header: "GET, HEAD". In the arena. */
const char *cn_http_methods_text(struct cn_arena *arena, unsigned methods);

/* Finds the route of a request. `path` is the path as sent, without the query; `table` ends with a
 * row whose handle is NULL. Returns CN_E_NOT_FOUND, CN_E_METHOD_NOT_ALLOWED (with `allowed` set),
 * or CN_E_BAD_REQUEST for a malformed escape, with TorchServe's messages. */
int cn_route_find(const struct cn_route *table, unsigned method, struct cn_str path,
                  struct cn_arena *arena, struct cn_route_match *out, struct cn_error *err);

#endif
