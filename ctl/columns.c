/* ctl/columns.c - lays out a table whose columns are as wide as their widest cell.
 *
 * Cells are added row by row; `align` has one letter for each column, l or r, and its length is the
 * number of columns. Two spaces stand between columns. Nothing is cut, so a long name makes its
 * column wide. Widths are counted in characters and not in bytes, because names may be UTF-8 (wide
 * characters, such as Chinese ones, are counted as one, which only costs alignment). */
#include "ctl/columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define COLUMNS_MAX 16

void
cn_ctl_table_init(struct cn_ctl_table *table, const char *align)
{
    *table = (struct cn_ctl_table){.align = align};
    cn_arena_init(&table->arena);
    cn_assert(strlen(align) <= COLUMNS_MAX);
}

void
cn_ctl_table_fini(struct cn_ctl_table *table)
{
    cn_arena_fini(&table->arena);
    cn_free(table->cells);
    table->cells = NULL;
    table->n_cells = table->cap = 0;
}

void
cn_ctl_table_add(struct cn_ctl_table *table, const char *fmt, ...)
{
    char text[512];
    struct cn_buf plain;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (table->n_cells == table->cap) {
        table->cap = table->cap ? table->cap * 2 : 64;
        table->cells = cn_try_realloc(table->cells, sizeof(*table->cells) * table->cap);
        cn_assert(table->cells);
    }
    cn_buf_init(&plain, 0);
    cn_ctl_put_plain(&plain, text);
    table->cells[table->n_cells++] = cn_arena_strndup(&table->arena, plain.data, plain.len);
    cn_buf_fini(&plain);
}

/* Returns the width in characters, not in bytes: model names may be UTF-8. */
static size_t
width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void
put_spaces(struct cn_buf *out, size_t count)
{
    while (count-- > 0)
        cn_buf_append(out, " ", 1);
}

void
cn_ctl_table_print(const struct cn_ctl_table *table, struct cn_buf *out)
{
    size_t widths[COLUMNS_MAX] = {0}, n = strlen(table->align), i, gap, width;
    bool last;

    for (i = 0; i < table->n_cells; i++) {
        width = width_of(table->cells[i]);
        if (width > widths[i % n])
            widths[i % n] = width;
    }
    for (i = 0; i < table->n_cells; i++) {
        last = i % n == n - 1;
        gap = widths[i % n] - width_of(table->cells[i]);
        if (table->align[i % n] == 'r')
            put_spaces(out, gap);
        cn_buf_puts(out, table->cells[i]);
        if (table->align[i % n] == 'l' && !last)
            put_spaces(out, gap);
        cn_buf_puts(out, last ? "\n" : "  ");
    }
}

/* Replaces control characters by question marks: those below 32, DEL, and in UTF-8 the bytes C2 80
 * to C2 9F, which some terminals obey as C1 controls. Other bytes pass unchanged. */
void
cn_ctl_put_plain(struct cn_buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];

        if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* C1 controls in UTF-8 */
            cn_buf_append(out, "?", 1);
            text++;
        } else {
            cn_buf_append(out, c < 0x20 || c == 0x7f ? "?" : text, 1);
        }
    }
}

void
cn_ctl_put_bytes(struct cn_buf *out, uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double value = (double)bytes / 1000;
    size_t unit = 0;

    for (; value >= 999.95 && unit < 3; unit++)
        value /= 1000;
    cn_buf_printf(out, "%.1f %s", value, units[unit]);
}
