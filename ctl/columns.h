/* ctl/columns.h - text for a terminal: columns, and words from outside made harmless. */
#ifndef CN_CTL_COLUMNS_H
#define CN_CTL_COLUMNS_H

#include <stdint.h>

#include "core/memory/arena.h"
#include "core/memory/buf.h"

struct cn_ctl_table {
    const char *align; /* one character a column: 'l' or 'r'; borrowed */
    struct cn_arena arena;
    char **cells;
    size_t n_cells, cap;
};

/* The heads come as the first cells. */
void cn_ctl_table_init(struct cn_ctl_table *table, const char *align);
void cn_ctl_table_fini(struct cn_ctl_table *table);
/* Row by row, from left to right. */
void cn_ctl_table_add(struct cn_ctl_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* One line a row, two spaces between columns, none at a line's end. */
void cn_ctl_table_print(const struct cn_ctl_table *table, struct cn_buf *out);

/* Appends text in one line: control characters become '?', so that a handler's last words can't
 * steer the terminal. */
void cn_ctl_put_plain(struct cn_buf *out, const char *text);
/* Appends "12.3 MB". */
void cn_ctl_put_bytes(struct cn_buf *out, uint64_t bytes);

#endif
