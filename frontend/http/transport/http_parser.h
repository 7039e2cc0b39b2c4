/* frontend/http/transport/http_parser.h - reads what an HTTP client sends, and stops at the first
 * byte that the grammar of HTTP/1.1 (RFC 9112) does not allow.
 *
 * It is stricter than many readers, so that no proxy in front of this server reads a request in
 * another way: lines end with CR and LF, no name or value has a control character, and the line
 * with a chunk's size is short. It follows requests from one to the next: the request line, header
 * lines, the body by its length or by its chunks, and the trailer. It leaves to http_checks.h what
 * needs whole headers, such as two lengths. It costs one look at each byte outside of bodies. An
 * object belongs to one connection.
 */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_HTTP_PARSER_H
#define CN_FRONTEND_HTTP_TRANSPORT_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/memory/arena.h"
#include "core/text/str.h"
#include "proto/message.h"

/* A line with the size of a chunk may have this many bytes, with its extensions. */
#define CN_HTTP_CHUNK_LINE_MAX 256

struct cn_http_parser {
    const char *why;  /* static text: why the last byte was refused; NULL: all is well */
    uint64_t left;    /* bytes of the body or of the chunk that are still to come */
    uint64_t length;  /* Content-Length, or the size of the chunk */
    uint64_t n_heads; /* complete heads of requests that have been read */
    uint32_t at;      /* bytes of the present line, or of the part of it that is being read */
    uint32_t n_lines; /* header lines of the head */
    uint8_t state;
    uint8_t header;    /* which header the present line has */
    uint8_t n_lengths; /* up to 2 */
    uint8_t n_codings; /* up to 2 */
    bool is_odd;       /* its length or coding is one that http_checks.h refuses */
    char word[20];     /* the start of the name or value */
};

enum cn_http_event {
    CN_PARSED_MORE, /* nothing to report: the bytes belong to a head, or lie around data */
    CN_PARSED_HEAD, /* the last byte ended the head of a request */
    CN_PARSED_DATA, /* the bytes are a piece of the body */
    CN_PARSED_BAD,  /* the byte behind them is refused; `why` says why. The parser has ended */
};

/* Reads further bytes, at most up to the next event. A zeroed parser is at the start of a
 * connection. Returns how many bytes it has taken. With CN_PARSED_MORE these are all, or those up
 * to where data begins or the message is complete. */
size_t cn_http_parser_next(struct cn_http_parser *parser, const char *bytes, size_t len,
                           enum cn_http_event *event);

/* The caller has itself put the next `len` bytes of data, at most `left`, where they belong. */
void cn_http_parser_skip(struct cn_http_parser *parser, size_t len);

/* Is the parser between two requests? After a head or data, this says that the message is
 * complete. */
bool cn_http_parser_is_between(const struct cn_http_parser *parser);
/* Is it in the middle of a head? */
bool cn_http_parser_is_in_head(const struct cn_http_parser *parser);
/* Is it in data of a body whose length was announced? */
bool cn_http_parser_is_in_body(const struct cn_http_parser *parser);

/* What a head says. All texts point into it. */
struct cn_http_head {
    struct cn_str method, path;
    bool is_http_1_1;
    bool has_folded; /* a header continues on a second line */
    uint32_t n_headers, n_query;
    /* CN_HTTP_SPARE_HEADERS unused places lie before the first one */
    struct cn_header *headers; /* values without the blanks around them */
    struct cn_header *query;   /* names and values as sent */
};

#define CN_HTTP_SPARE_HEADERS 2

/* Splits a complete head that the parser has taken. The arrays are in the arena. */
void cn_http_head_split(const struct cn_http_parser *parser, struct cn_str text,
                        struct cn_arena *arena, struct cn_http_head *out);

#endif
