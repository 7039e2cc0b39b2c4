/* core/memory/buf.h - a byte buffer that grows up to a limit. */
#ifndef CN_CORE_MEMORY_BUF_H
#define CN_CORE_MEMORY_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "core/text/str.h"

struct cn_buf {
    char *data;       /* cn_free()d by fini; NULL while empty */
    size_t len, cap;  /* bytes */
    size_t max_bytes; /* 0: no limit of its own */
    int failed;       /* sticky: something did not fit; len is then what fitted before */
};

void cn_buf_init(struct cn_buf *buf, size_t max_bytes);
void cn_buf_fini(struct cn_buf *buf);
/* Empties, keeps the memory, clears `failed`. */
void cn_buf_reset(struct cn_buf *buf);

/* For cn_buf_reserve: what is there is too small. */
char *cn_buf_make_room(struct cn_buf *buf, size_t bytes);

/* Room for `bytes` more, or NULL (and failed). The caller adds to `len` what it wrote. Inline: a
 * frame is written in many small pieces. */
static inline char *
cn_buf_reserve(struct cn_buf *buf, size_t bytes)
{
    if (buf->data && !buf->failed && bytes <= buf->cap - buf->len)
        return buf->data + buf->len;
    return cn_buf_make_room(buf, bytes);
}

/* 0, or -1 (and failed). */
int cn_buf_append(struct cn_buf *buf, const void *bytes, size_t len);
int cn_buf_append_str(struct cn_buf *buf, struct cn_str text);
int cn_buf_puts(struct cn_buf *buf, const char *text);
int cn_buf_printf(struct cn_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* In decimal; a double as cn_put_double writes it. */
int cn_buf_put_int(struct cn_buf *buf, int64_t value);
int cn_buf_put_uint(struct cn_buf *buf, uint64_t value);
int cn_buf_put_double(struct cn_buf *buf, double value);
/* Drops the first `bytes` and moves the rest to the front. */
void cn_buf_consume(struct cn_buf *buf, size_t bytes);
/* Ownership of the bytes (with a NUL behind them) to the caller: cn_free(). Never NULL. */
char *cn_buf_take(struct cn_buf *buf, size_t *len);

static inline struct cn_str
cn_buf_str(const struct cn_buf *buf)
{
    return (struct cn_str){buf->data, buf->len};
}

#endif
