/* core/memory/buf.h - a byte buffer that grows up to a limit. Not thread-safe.
 *
 * A failure is sticky: once something did not fit, all further appends fail and `failed` stays set.
 * So a caller may append many parts and look once at the end.
 *
 * A buffer's memory comes from the heap. A buffer with an allocator gets large memory from that
 * instead, so that its content is where it is needed in the end and is not copied. */
#ifndef CN_CORE_MEMORY_BUF_H
#define CN_CORE_MEMORY_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/text/str.h"

struct cn_buf_allocator {
    size_t min_bytes; /* smaller memory comes from the heap */
    /* Returns `bytes` bytes of memory, or NULL when there is no room: then the heap is used. */
    char *(*take)(struct cn_buf_allocator *allocator, size_t bytes);
    void (*give_back)(struct cn_buf_allocator *allocator, char *data);
};

struct cn_buf {
    char *data;       /* freed by fini; NULL while empty */
    size_t len, cap;  /* bytes */
    size_t max_bytes; /* 0: no limit of its own */
    struct cn_buf_allocator *allocator;
    bool from_allocator; /* `data` is from `allocator` */
    int failed;          /* something did not fit; `len` is then what fitted before */
};

/* Makes an empty buffer, which allocates nothing yet; fini frees its memory. */
void cn_buf_init(struct cn_buf *buf, size_t max_bytes);
void cn_buf_fini(struct cn_buf *buf);
/* Empties the buffer, clears `failed`, and keeps its memory if that is from the heap. */
void cn_buf_reset(struct cn_buf *buf);

/* Gives an empty buffer an allocator, or none (NULL), which must live as long as the buffer has
 * it. */
void cn_buf_set_allocator(struct cn_buf *buf, struct cn_buf_allocator *allocator);
/* Empties a buffer without giving the allocator's memory back: that belongs to somebody else now.
 * Does nothing when the memory is from the heap. */
void cn_buf_disown(struct cn_buf *buf);

/* The part of cn_buf_reserve that allocates. */
char *cn_buf_make_room(struct cn_buf *buf, size_t bytes);

/* Returns room for `bytes` more behind `len`, or NULL and sets `failed`. The caller adds to `len`
 * what it wrote. Inline, because a frame is written in many small pieces. */
static inline char *
cn_buf_reserve(struct cn_buf *buf, size_t bytes)
{
    if (buf->data && !buf->failed && bytes <= buf->cap - buf->len)
        return buf->data + buf->len;
    return cn_buf_make_room(buf, bytes);
}

/* These return 0, or -1 and set `failed`. cn_buf_append and cn_buf_puts are inline, because the
 * compiler knows the length of most texts, and copies a short one without a call. */
static inline int
cn_buf_append(struct cn_buf *buf, const void *bytes, size_t len)
{
    char *to = cn_buf_reserve(buf, len);

    if (!to)
        return -1;
    if (len)
        memcpy(to, bytes, len);
    buf->len += len;
    return 0;
}
int cn_buf_append_str(struct cn_buf *buf, struct cn_str text);
int cn_buf_printf(struct cn_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline int
cn_buf_puts(struct cn_buf *buf, const char *text)
{
    return cn_buf_append(buf, text, strlen(text));
}
/* Append a number in decimal; a double as cn_put_double writes it. */
int cn_buf_put_int(struct cn_buf *buf, int64_t value);
int cn_buf_put_uint(struct cn_buf *buf, uint64_t value);
int cn_buf_put_double(struct cn_buf *buf, double value);
/* Drops the first `bytes` and moves the rest to the beginning. */
void cn_buf_consume(struct cn_buf *buf, size_t bytes);
/* Gives the bytes, with a NUL behind them, to the caller, who frees them with cn_free; the buffer
 * is empty then. Never NULL. */
char *cn_buf_take(struct cn_buf *buf, size_t *len);

static inline struct cn_str
cn_buf_str(const struct cn_buf *buf)
{
    return (struct cn_str){buf->data, buf->len};
}

#endif
