/* frontend/http/http_checks.h - checks that every reader understands a request in the same way.
 *
 * These are pure functions over what transport/http_parser.h has taken, so no name or value has a
 * character that must not be in it. They refuse the forms by which one request hides another one
 * from a proxy in front of this server (request smuggling), and they read numbers and escapes
 * strictly. Any thread.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_CHECKS_H
#define CN_FRONTEND_HTTP_HTTP_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "proto/message.h"

/* How the body of a request is delimited, and what becomes of the connection. */
struct cn_http_framing {
    bool has_length; /* Content-Length was sent; `length` holds it */
    bool chunked;
    bool expects_continue;
    bool closes;     /* the client wants the connection to end with the answer */
    uint64_t length; /* bytes */
};

/* Reads Host, Content-Length, Transfer-Encoding, Expect and Connection. CN_E_BAD_REQUEST names the
 * header that is wrong; the connection must not be used after that. */
int cn_http_check_headers(const struct cn_header *headers, uint32_t n, bool is_http_1_1,
                          struct cn_http_framing *out, struct cn_error *err);

/* A client may send a whole URL in place of the path (RFC 9112, 3.2.2), as it does to a proxy.
 * Leaves the path of it. CN_E_BAD_REQUEST: the URL and the Host header name different hosts, so two
 * readers could take the request for two. */
int cn_http_take_path(struct cn_str *path, const struct cn_header *headers, uint32_t n,
                      struct cn_error *err);

/* Checks a path or query as it was sent. Returns CN_E_BAD_REQUEST for control characters, spaces,
 * incomplete escapes and %00. */
int cn_http_check_url(struct cn_str raw, struct cn_error *err);

/* Decodes %XX, and in a query `+` as a space, into the arena. Returns false when an escape is
 * incomplete or stands for NUL. */
bool cn_http_decode(struct cn_arena *arena, struct cn_str raw, bool plus_is_space,
                    struct cn_str *out);

/* May a handler's header go into a response? Returns false when its name is not a token (RFC 9110),
 * or when its value has control characters: with CR and LF a handler could begin a response of its
 * own. */
bool cn_http_header_is_valid(struct cn_str name, struct cn_str value);

/* Does an Accept header name that type? Wildcards and q-values are ignored. */
bool cn_http_accepts(struct cn_str accept, struct cn_str type);

#endif
