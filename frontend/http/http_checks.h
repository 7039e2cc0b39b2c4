/* frontend/http/http_checks.h - is this request what it seems, to every reader alike?
 *
 * Pure functions over what libmicrohttpd parsed. They refuse the shapes by which
 * one request hides another from a proxy in front of us (request smuggling), and
 * read numbers and escapes strictly. Any thread.
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

/* How the body of a request is delimited. */
struct cn_http_framing {
    bool has_length; /* Content-Length was sent; `length` holds it */
    bool chunked;
    bool expects_continue;
    uint64_t length; /* bytes */
};

/* Checks names, values, Host, Content-Length and Transfer-Encoding. CN_E_BAD_REQUEST says which
 * header is wrong; the connection must not be used after that. */
int cn_http_check_headers(const struct cn_header *headers, uint32_t n, bool is_http_1_1,
                          struct cn_http_framing *out, struct cn_error *err);

/* Path or query as sent: CN_E_BAD_REQUEST for control characters, spaces, incomplete escapes and
 * %00. */
int cn_http_check_url(struct cn_str raw, struct cn_error *err);

/* Decodes %XX (and `+` as space for a query) into the arena. False when an escape is incomplete or
 * stands for NUL. */
bool cn_http_decode(struct cn_arena *arena, struct cn_str raw, bool plus_is_space,
                    struct cn_str *out);

/* May a handler's header go into a response? Not when it is no token, or its value has control
 * characters (CR and LF above all). */
bool cn_http_header_is_valid(struct cn_str name, struct cn_str value);
/* Is this header the server's own business in a response (hop-by-hop, framing, our own names)? */
bool cn_http_header_is_ours(struct cn_str name);

/* Only bytes from ' ' to '~': may stand in gRPC's metadata, and in any header. */
bool cn_http_is_printable_ascii(struct cn_str text);

/* Without blanks at both ends. */
struct cn_str cn_http_trim(struct cn_str text);
/* Does an Accept header name that type? Wildcards and q-values mean nothing. */
bool cn_http_accepts(struct cn_str accept, struct cn_str type);

/* The first header of that name (case and - or _ do not count), or NULL. */
const struct cn_header *cn_http_find(const struct cn_header *headers, uint32_t n,
                                     struct cn_str name);

#endif
