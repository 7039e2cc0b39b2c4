/* ctl/columns.h - prints tables on a terminal, and makes text from elsewhere harmless for it. */
#ifndef CN_CTL_COLUMNS_H
#define CN_CTL_COLUMNS_H

#include <stdint.h>

#include "core/memory/arena.h"
#include "core/memory/buf.h"

struct cn_ctl_table {
    const char *align; /* one letter for each column: 'l' for left, 'r' for right; borrowed */
    struct cn_arena arena;
    char **cells;
    size_t n_cells, cap;
};

/* Begins a table. Its first row of cells has the heads. */
void cn_ctl_table_init(struct cn_ctl_table *table, const char *align);
void cn_ctl_table_fini(struct cn_ctl_table *table);
/* Adds one cell. Cells are added row by row, from left to right. */
void cn_ctl_table_add(struct cn_ctl_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints each row as a line. Two spaces stand between columns, and none at the end of a line. */
void cn_ctl_table_print(const struct cn_ctl_table *table, struct cn_buf *out);

/* Appends the text as one line. Control characters become '?', so that text from a handler cannot
 * steer the terminal. */
void cn_ctl_put_plain(struct cn_buf *out, const char *text);
/* Appends a size with its unit, such as "12.3 MB". */
void cn_ctl_put_bytes(struct cn_buf *out, uint64_t bytes);

#endif
