/* cn_fuzz: core frontend */
/* tests/fuzz/http_checks_fuzz.c - any bytes as header lists and URLs.
 *
 * Input: the URL in the first line, then lines "name:value". Besides memory errors it checks that
 * there is one way to find the end of the body, and that decoded text contains no NUL.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/text/utf8.h"
#include "frontend/events/events.h"
#include "frontend/http/http_checks.h"
#include "frontend/intake/headers.h"
#include "tests/fuzz/fuzz.h"

#define HEADERS_MAX 64

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
check_url(struct cn_arena *arena, struct cn_str url)
{
    struct cn_str decoded;
    bool accepted = cn_http_check_url(url, NULL) == 0;

    if (cn_http_decode(arena, url, false, &decoded) && accepted) {
        cn_assert(decoded.len <= url.len);
        cn_assert(decoded.len == 0 || !memchr(decoded.ptr, '\0', decoded.len));
    } else {
        cn_assert(!accepted);
    }
    cn_utf8_is_printable(url);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str rest = {(const char *)data, size}, line;
    struct cn_header headers[HEADERS_MAX];
    struct cn_http_framing framing;
    struct cn_event_id id;
    struct cn_arena arena;
    uint32_t n = 0;

    cn_arena_init(&arena);
    check_url(&arena, next_line(&rest));
    while (rest.len && n < HEADERS_MAX) {
        const char *colon;

        line = next_line(&rest);
        colon = line.len ? memchr(line.ptr, ':', line.len) : NULL;
        if (!colon)
            continue;
        headers[n].name = (struct cn_str){line.ptr, (size_t)(colon - line.ptr)};
        headers[n].value = (struct cn_str){colon + 1, line.len - headers[n].name.len - 1};
        cn_header_is_ours(headers[n].name);
        if (cn_event_id_read(headers[n].value, &id, NULL) == 0)
            cn_assert(id.given && (!id.is_end || id.piece == 0));
        n++;
    }
    if (cn_http_check_headers(headers, n, true, &framing, NULL) == 0) {
        cn_assert(!(framing.chunked && framing.has_length));
        cn_assert(cn_header_find(headers, n, CN_STR("host")));
    }
    cn_arena_fini(&arena);
    return 0;
}
