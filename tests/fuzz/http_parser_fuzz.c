/* cn_fuzz: core frontend */
/* tests/fuzz/http_parser_fuzz.c - any bytes as what an HTTP client sends.
 *
 * Besides memory errors it checks that the parser says the same however the bytes are cut into
 * pieces, and that each head that it has taken can be split. The first byte says where the bytes
 * are cut.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "frontend/http/transport/http_parser.h"
#include "tests/fuzz/fuzz.h"

static void
split(const struct cn_http_parser *parser, const char *bytes, size_t len)
{
    struct cn_http_head head;
    struct cn_arena arena;

    cn_arena_init(&arena);
    cn_http_head_split(parser, (struct cn_str){bytes, len}, &arena, &head);
    cn_assert(head.method.len > 0); /* the path may be empty: the URL "?" is a query without one */
    cn_assert(head.path.ptr > bytes && head.path.ptr + head.path.len < bytes + len);
    cn_assert(head.n_headers <= parser->n_lines);
    cn_arena_fini(&arena);
}

/* Takes bytes with all their events, at most `step` at a time. Returns how many were taken. */
static size_t
feed(struct cn_http_parser *parser, const char *bytes, size_t len, size_t step)
{
    size_t at = 0, begin = 0;

    while (at < len) {
        const size_t part = len - at < step ? len - at : step;
        enum cn_http_event event;

        at += cn_http_parser_next(parser, bytes + at, part, &event);
        if (event == CN_PARSED_BAD)
            return at;
        if (event == CN_PARSED_HEAD)
            split(parser, bytes + begin, at - begin);
        if (!cn_http_parser_is_in_head(parser))
            begin = at;
    }
    return at;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_http_parser whole = {0}, pieces = {0};
    const char *bytes = (const char *)data + 1;
    size_t taken;

    if (size < 2)
        return 0;
    size--;
    taken = feed(&whole, bytes, size, size);
    cn_assert(taken <= size && (taken == size) == !whole.why);
    cn_assert(feed(&pieces, bytes, size, data[0] % 17 + 1) == taken && pieces.why == whole.why);
    cn_assert(pieces.state == whole.state && pieces.left == whole.left);
    return 0;
}
