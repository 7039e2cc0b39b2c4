/* cn_fuzz: core management */
/* tests/fuzz/printed_lines_fuzz.c - any bytes as what a worker or its handler prints.
 *
 * The bytes come in pieces of different sizes, as from a pipe. Besides memory errors: lines are
 * never empty and never longer than the limit, a quoted text is the same when it is unquoted, and a
 * line becomes members of a JSON object. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "management/workers/stderr_tail.h"
#include "tests/fuzz/fuzz.h"

static void
on_line(void *ctx, const char *line)
{
    static char quoted[4 * CN_TAIL_LINE_BYTES + 3], text[CN_TAIL_LINE_BYTES + 1];
    static char members[8 * CN_TAIL_LINE_BYTES], object[sizeof(members) + 3];
    const size_t len = strlen(line);
    json_t *value;

    (void)ctx;
    cn_assert(len > 0 && len <= CN_TAIL_LINE_BYTES);
    cn_log_quote(line, len, quoted, sizeof(quoted));
    if (quoted[0] == '"') {
        cn_assert(cn_log_unquote(quoted + 1, text, sizeof(text)) == len);
        cn_assert(memcmp(text, line, len) == 0);
    }
    cn_log_unquote(line, text, sizeof(text));
    members[cn_log_json_members(line, members, sizeof(members) - 1)] = '\0';
    snprintf(object, sizeof(object), "{%s}", members[0] == ',' ? members + 1 : members);
    value = json_loads(object, JSON_ALLOW_NUL, NULL); /* a handler may print "\x00" */
    cn_assert(value);
    json_decref(value);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char joined[2 * CN_TAIL_BYTES];
    struct cn_stderr_tail tail;

    cn_stderr_tail_init(&tail);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = 1u + data[at] % 61;
        if (piece > size - at)
            piece = size - at;
        cn_stderr_tail_add(&tail, (const char *)data + at, piece, on_line, NULL);
    }
    cn_stderr_tail_end(&tail, on_line, NULL);
    cn_assert(strlen(cn_stderr_tail_last(&tail)) <= CN_TAIL_LINE_BYTES);
    cn_stderr_tail_join(&tail, CN_TAIL_LINES, joined, sizeof(joined));
    cn_stderr_tail_fini(&tail);
    return 0;
}
