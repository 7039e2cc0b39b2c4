/* frontend/http/transport/http_split.c - finds the parts of a head that http_parser.c has taken.
 * Any thread.
 *
 * The parser has looked at each byte, so this only looks for the ends of the parts: every line ends
 * with CR and LF, the request line has two blanks, and each header line that is not folded has a
 * colon. */
#include <string.h>

#include "frontend/http/transport/http_parser.h"

/* Counts the parameters of a query: the parts between ampersands. */
static uint32_t
count_parameters(struct cn_str query)
{
    const char *at = query.ptr, *end = query.ptr + query.len;
    uint32_t n = 1;

    while (at < end && (at = memchr(at, '&', (size_t)(end - at)))) {
        at++;
        n++;
    }
    return query.len ? n : 0;
}

/* Splits "a=1&b" into names and values. A parameter without "=" has an empty value, and an empty
 * part does not count. */
static uint32_t
split_query(struct cn_str query, struct cn_header *out)
{
    uint32_t n = 0;

    while (query.len > 0) {
        struct cn_str value = cn_str_cut(&query, '&');
        const struct cn_str name = cn_str_cut(&value, '=');

        if (name.len || value.len)
            out[n++] = (struct cn_header){name, value};
    }
    return n;
}

/* Takes the text up to `end`, which is there, and moves `at` behind it. */
static struct cn_str
take_until(const char **at, const char *stop, char end)
{
    const char *from = *at, *found = memchr(from, end, (size_t)(stop - from));

    *at = found + 1;
    return (struct cn_str){from, (size_t)(found - from)};
}

static void
split_headers(const char *at, const char *stop, struct cn_http_head *out)
{
    while (*at != '\r') { /* the empty line */
        struct cn_header *header = &out->headers[out->n_headers];
        struct cn_str line;

        if (*at == ' ' || *at == '\t') {
            out->has_folded = true;
            take_until(&at, stop, '\n');
            continue;
        }
        header->name = take_until(&at, stop, ':');
        line = take_until(&at, stop, '\r');
        header->value = cn_str_trim(line);
        out->n_headers++;
        at++; /* LF */
    }
}

void
cn_http_head_split(const struct cn_http_parser *parser, struct cn_str text, struct cn_arena *arena,
                   struct cn_http_head *out)
{
    const char *at = text.ptr, *const stop = text.ptr + text.len;
    struct cn_str query;

    *out = (struct cn_http_head){.n_headers = 0};
    /* Empty lines may come before the request. The CR of one may have come in an earlier packet. */
    while (*at == '\r' || *at == '\n')
        at++;
    out->method = take_until(&at, stop, ' ');
    query = take_until(&at, stop, ' ');
    out->path = cn_str_cut(&query, '?');
    out->is_http_1_1 = at[sizeof("HTTP/1.") - 1] == '1';
    take_until(&at, stop, '\n');
    out->headers = (struct cn_header *)cn_arena_alloc(
                       arena, sizeof(struct cn_header) * (CN_HTTP_SPARE_HEADERS + parser->n_lines +
                                                          count_parameters(query))) +
                   CN_HTTP_SPARE_HEADERS;
    out->query = out->headers + parser->n_lines;
    out->n_query = split_query(query, out->query);
    split_headers(at, stop, out);
}
