/* frontend/guard/http_strict.h - reads what an HTTP client sends before libmicrohttpd does, and
 * stops at the first byte that the grammar of HTTP/1.1 (RFC 9112) does not allow.
 *
 * libmicrohttpd takes shapes that proxies read in another way: lines that end with LF alone, NUL in
 * names and values, a header line that begins with a colon. And it reads a chunk line that does not
 * fit its buffer again and again. This reader follows requests from one to the next: the request
 * line, header lines, the body by its length or by its chunks, and the trailer. It leaves to
 * http_checks.h what needs whole headers, such as two lengths. It costs one look at each byte
 * outside of bodies. An object belongs to one connection.
 */
#ifndef CN_FRONTEND_GUARD_HTTP_STRICT_H
#define CN_FRONTEND_GUARD_HTTP_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line with the size of a chunk may have this many bytes, with its extensions. libmicrohttpd
 * must be able to hold the whole line: CN_HTTP_ANSWER_ROOM bytes of its buffer are always free. */
#define CN_HTTP_CHUNK_LINE_MAX 256

struct cn_http_strict {
    const char *why;  /* static text: why the last byte was refused; NULL: all is well */
    uint64_t left;    /* bytes of the body or of the chunk that are still to come */
    uint64_t length;  /* Content-Length, or the size of the chunk */
    uint64_t n_heads; /* complete heads of requests that have been read */
    uint32_t at;      /* bytes of the present line, or of the part of it that is being read */
    uint8_t state;
    uint8_t header;    /* which header the present line has */
    uint8_t n_lengths; /* up to 2 */
    uint8_t n_codings; /* up to 2 */
    bool is_odd;       /* its length or coding is one that http_checks.h refuses */
    bool is_off;       /* the connection does not speak HTTP any more */
    char word[20];     /* the start of the name or value */
};

/* A zeroed object is at the start of a connection. Reads `len` further bytes. Returns how many of
 * them are allowed; if these are fewer than `len`, `why` is set, and nothing more may be fed. */
size_t cn_http_strict_feed(struct cn_http_strict *strict, const char *bytes, size_t len);

/* Is the reader between two requests? */
bool cn_http_strict_is_between(const struct cn_http_strict *strict);

#endif
