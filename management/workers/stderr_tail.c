/* management/workers/stderr_tail.c - keeps the last lines that a process printed. It runs on
 * the loop of the process's supervisor.
 *
 * Lines are kept in a ring; `next` is the place of the next one. Two bounds hold: the number of
 * lines and the sum of their bytes, for which the oldest ones are dropped. A line that is too long
 * is cut into several.
 */
#include "management/workers/stderr_tail.h"

#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"

void
cn_stderr_tail_init(struct cn_stderr_tail *tail)
{
    memset(tail, 0, sizeof *tail);
}

static void
drop(struct cn_stderr_tail *tail, unsigned at)
{
    if (!tail->lines[at])
        return;
    tail->bytes -= strlen(tail->lines[at]);
    cn_free(tail->lines[at]);
    tail->lines[at] = NULL;
}

void
cn_stderr_tail_fini(struct cn_stderr_tail *tail)
{
    unsigned i;

    for (i = 0; i < CN_TAIL_LINES; i++)
        drop(tail, i);
    cn_stderr_tail_init(tail);
}

static void
take_partial(struct cn_stderr_tail *tail, cn_stderr_line_fn on_line, void *ctx)
{
    unsigned oldest;

    if (tail->partial_len && tail->partial[tail->partial_len - 1] == '\r')
        tail->partial_len--;
    if (tail->partial_len == 0)
        return;
    tail->partial[tail->partial_len] = '\0';
    drop(tail, tail->next);
    tail->lines[tail->next] = cn_strndup(tail->partial, tail->partial_len);
    tail->bytes += strlen(tail->lines[tail->next]);
    tail->next = (tail->next + 1) % CN_TAIL_LINES;
    for (oldest = tail->next; tail->bytes > CN_TAIL_BYTES; oldest = (oldest + 1) % CN_TAIL_LINES)
        drop(tail, oldest);
    tail->partial_len = 0;
    on_line(ctx, tail->partial);
}

void
cn_stderr_tail_add(struct cn_stderr_tail *tail, const char *bytes, size_t len,
                   cn_stderr_line_fn on_line, void *ctx)
{
    size_t i;

    for (i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            take_partial(tail, on_line, ctx);
            tail->partial_len = 0;
            continue;
        }
        if (tail->partial_len == CN_TAIL_LINE_BYTES)
            take_partial(tail, on_line, ctx);
        tail->partial[tail->partial_len++] = bytes[i] ? bytes[i] : '?';
    }
}

void
cn_stderr_tail_end(struct cn_stderr_tail *tail, cn_stderr_line_fn on_line, void *ctx)
{
    take_partial(tail, on_line, ctx);
    tail->partial_len = 0;
}

const char *
cn_stderr_tail_last(const struct cn_stderr_tail *tail)
{
    const char *line = tail->lines[(tail->next + CN_TAIL_LINES - 1) % CN_TAIL_LINES];

    return line ? line : "";
}

const char *
cn_stderr_tail_join(const struct cn_stderr_tail *tail, unsigned lines, char *out, size_t out_bytes)
{
    unsigned first = CN_TAIL_LINES, back;
    size_t need = 0, used = 0;
    const char *line;

    /* Find out how many of the last lines fit. */
    for (back = 1; back <= lines && back <= CN_TAIL_LINES; back++) {
        line = tail->lines[(tail->next + CN_TAIL_LINES - back) % CN_TAIL_LINES];
        if (!line || need + strlen(line) + 3 >= out_bytes)
            break;
        need += strlen(line) + 3;
    }
    out[0] = '\0';
    if (back == 1)
        snprintf(out, out_bytes, "%s", cn_stderr_tail_last(tail));
    for (first = back - 1; first > 0; first--) {
        line = tail->lines[(tail->next + CN_TAIL_LINES - first) % CN_TAIL_LINES];
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? " | " : "", line);
    }
    return out;
}
