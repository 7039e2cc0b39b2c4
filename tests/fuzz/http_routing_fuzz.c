/* cn_fuzz: core frontend */
/* tests/fuzz/http_routing_fuzz.c - any bytes as the path of a request and the headers that decide
 * what is done with it.
 *
 * Input: the path in the first line, then lines "name:value". Each table of routes is searched for
 * the path, and the headers choose the coding, the session and the origin. Besides memory errors:
 * arguments of a path are shorter than it, and refusals say why. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "frontend/endpoints/routes.h"
#include "frontend/http/browser_checks.h"
#include "frontend/http/http_checks.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/session.h"
#include "tests/fuzz/fuzz.h"

#define HEADERS_MAX 32

static struct cn_str
next_line(struct cn_str *rest)
{
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    struct cn_str line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = end ? line.len + 1 : line.len;

    if (used) {
        rest->ptr += used;
        rest->len -= used;
    }
    return line;
}

static void
find_routes(struct cn_arena *arena, struct cn_str path)
{
    const struct cn_route *const tables[] = {cn_inference_routes, cn_torchserve_routes,
                                             cn_management_routes, cn_metrics_routes};

    for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        struct cn_route_match match;
        struct cn_error err = {0};

        if (cn_route_find(tables[i], CN_HTTP_POST, path, arena, &match, &err)) {
            cn_assert(err.code && err.message[0]);
            continue;
        }
        cn_assert(match.route && match.n_args <= CN_ROUTE_ARGS_MAX);
        for (unsigned k = 0; k < match.n_args; k++)
            cn_assert(match.args[k].len <= path.len);
    }
}

static void
look_at_headers(struct cn_arena *arena, const struct cn_header *headers, uint32_t n)
{
    struct cn_sequence_headers sequence = {0};
    struct cn_session session = {0};
    struct cn_error err = {0};

    cn_assert(cn_coding_name(cn_coding_choose(headers, n))[0]);
    if (cn_browser_check_origin(headers, n, "https://a.example", &err))
        cn_assert(err.code == CN_E_FOREIGN_SITE && err.message[0]);
    if (cn_browser_check_host(headers, n, "a.example,b.example", &err))
        cn_assert(err.code == CN_E_FOREIGN_SITE && err.message[0]);
    if (cn_intake_read_sequence(headers, n, &sequence, &err) == 0 &&
        cn_session_read(headers, n, &sequence, &session, &err) == 0 && session.used) {
        cn_assert(sequence.id.len > 0);
        cn_session_value(arena, &session, 1700000000000);
    }
    for (uint32_t i = 0; i < n; i++)
        cn_http_accepts(headers[i].value, CN_STR("text/event-stream"));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str rest = {(const char *)data, size};
    struct cn_header headers[HEADERS_MAX];
    struct cn_arena arena;
    uint32_t n = 0;

    cn_arena_init(&arena);
    find_routes(&arena, next_line(&rest));
    while (rest.len && n < HEADERS_MAX) {
        struct cn_str line = next_line(&rest);
        const char *colon = line.len ? memchr(line.ptr, ':', line.len) : NULL;

        if (!colon)
            continue;
        headers[n].name = (struct cn_str){line.ptr, (size_t)(colon - line.ptr)};
        headers[n].value = (struct cn_str){colon + 1, line.len - headers[n].name.len - 1};
        n++;
    }
    look_at_headers(&arena, headers, n);
    cn_arena_fini(&arena);
    return 0;
}
