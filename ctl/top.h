/* ctl/top.h - shows a table of the server that changes once a second. */
#ifndef CN_CTL_TOP_H
#define CN_CTL_TOP_H

#include <stdbool.h>

#include "core/memory/buf.h"
#include "ctl/read_models.h"

/* What a frame shows, and how it is read. */
struct cn_ctl_top_source {
    void *ctx;
    /* Reads what the frame shows; `*out` is NULL after an error. */
    int (*read)(void *ctx, void **out, struct cn_error *err);
    void (*drop)(void *frame); /* NULL is allowed */
    void (*show)(void *ctx, const void *before, const void *now, bool json, struct cn_buf *text);
};

/* Does what cn_ctl_top does, for any source. */
int cn_ctl_top_run(const struct cn_ctl_top_source *source, bool once, bool json,
                   struct cn_error *err);

/* Shows a frame once a second until q or Ctrl-C. With `once` it shows a single frame, after one
 * interval. Returns 0, or the error of reading the first view. With `once`, an error of reading the
 * second view counts, too. */
int cn_ctl_top(const struct cn_ctl_server *server, bool once, bool json, struct cn_error *err);

#endif
