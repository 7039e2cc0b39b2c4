/* management/workers/stderr_tail.h - the last lines that a process printed, for its last words. */
#ifndef CN_MANAGEMENT_WORKERS_STDERR_TAIL_H
#define CN_MANAGEMENT_WORKERS_STDERR_TAIL_H

#include <stddef.h>

#define CN_TAIL_LINES 20
#define CN_TAIL_BYTES 4096 /* of all lines kept */
#define CN_TAIL_LINE_BYTES                                                                         \
    3600 /* longer lines are cut into pieces; a line of the log has room for it */

struct cn_stderr_tail {
    char *lines[CN_TAIL_LINES]; /* a ring; NULL where there is none */
    unsigned next;              /* where the next line goes */
    size_t bytes;
    char partial[CN_TAIL_LINE_BYTES + 1]; /* a line whose end has not come yet */
    size_t partial_len;
};

typedef void (*cn_stderr_line_fn)(void *ctx, const char *line);

void cn_stderr_tail_init(struct cn_stderr_tail *tail);
void cn_stderr_tail_fini(struct cn_stderr_tail *tail);
/* `on_line` for each line that is complete, without its end and never empty. */
void cn_stderr_tail_add(struct cn_stderr_tail *tail, const char *bytes, size_t len,
                        cn_stderr_line_fn on_line, void *ctx);
/* No more comes: what is left is a line too. */
void cn_stderr_tail_end(struct cn_stderr_tail *tail, cn_stderr_line_fn on_line, void *ctx);
/* The newest line, or "". */
const char *cn_stderr_tail_last(const struct cn_stderr_tail *tail);
/* The newest lines, oldest first, joined by " | ", as many as fit; returns out. */
const char *cn_stderr_tail_join(const struct cn_stderr_tail *tail, unsigned lines, char *out,
                                size_t out_bytes);

#endif
