/* core/memory/buf.c - a byte buffer that doubles when it is full. Owned by its holder; no locks.
 *
 * Memory that was allocated stays until fini or take, so a buffer that is filled again and again
 * soon allocates nothing. The limit (max_bytes) is on the content, not on the memory. */
#include "core/memory/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/number.h"

#define FIRST_CAP 256

void
cn_buf_init(struct cn_buf *buf, size_t max_bytes)
{
    *buf = (struct cn_buf){.max_bytes = max_bytes};
}

void
cn_buf_fini(struct cn_buf *buf)
{
    cn_free(buf->data);
    cn_buf_init(buf, buf->max_bytes);
}

void
cn_buf_reset(struct cn_buf *buf)
{
    buf->len = 0;
    buf->failed = 0;
}

/* Makes the capacity at least `need`. One byte more than `cap` is always allocated, so that
 * cn_buf_take can add its NUL without moving anything. */
static int
grow(struct cn_buf *buf, size_t need)
{
    size_t limit = buf->max_bytes ? buf->max_bytes : SIZE_MAX / 2;
    size_t cap = buf->cap ? buf->cap : FIRST_CAP;
    char *data;

    while (cap < need)
        cap = cap > limit / 2 ? limit : cap * 2;
    if (cap > limit)
        cap = limit;
    data = cn_try_realloc(buf->data, cap + 1);
    if (!data)
        return -1;
    buf->data = data;
    buf->cap = cap;
    return 0;
}

char *
cn_buf_make_room(struct cn_buf *buf, size_t bytes)
{
    size_t limit = buf->max_bytes ? buf->max_bytes : SIZE_MAX / 2;

    if (buf->failed)
        return NULL;
    if (buf->len > limit || bytes > limit - buf->len || grow(buf, buf->len + bytes) < 0) {
        buf->failed = 1;
        return NULL;
    }
    return buf->data + buf->len;
}

int
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

int
cn_buf_append_str(struct cn_buf *buf, struct cn_str text)
{
    return cn_buf_append(buf, text.ptr, text.len);
}

int
cn_buf_put_uint(struct cn_buf *buf, uint64_t value)
{
    char text[CN_NUMBER_MAX];

    return cn_buf_append(buf, text, (size_t)(cn_put_uint(value, text) - text));
}

int
cn_buf_put_int(struct cn_buf *buf, int64_t value)
{
    char text[CN_NUMBER_MAX];

    return cn_buf_append(buf, text, (size_t)(cn_put_int(value, text) - text));
}

int
cn_buf_put_double(struct cn_buf *buf, double value)
{
    char text[CN_NUMBER_MAX];

    return cn_buf_append(buf, text, (size_t)(cn_put_double(value, text) - text));
}

/* Tries with the room that is there; a text that is longer is formatted a second time. */
int
cn_buf_printf(struct cn_buf *buf, const char *fmt, ...)
{
    va_list args;
    int n;

    if (!cn_buf_reserve(buf, 0))
        return -1;
    va_start(args, fmt);
    n = vsnprintf(buf->data + buf->len, buf->cap - buf->len + 1, fmt, args);
    va_end(args);
    if (n < 0) {
        buf->failed = 1;
        return -1;
    }
    if ((size_t)n > buf->cap - buf->len) {
        if (!cn_buf_reserve(buf, (size_t)n))
            return -1;
        va_start(args, fmt);
        vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    buf->len += (size_t)n;
    return 0;
}

void
cn_buf_consume(struct cn_buf *buf, size_t bytes)
{
    cn_assert(bytes <= buf->len);
    if (bytes == 0)
        return;
    buf->len -= bytes;
    if (buf->len)
        memmove(buf->data, buf->data + bytes, buf->len);
}

char *
cn_buf_take(struct cn_buf *buf, size_t *len)
{
    char *data = buf->data ? buf->data : cn_alloc(1);

    data[buf->len] = '\0';
    if (len)
        *len = buf->len;
    buf->data = NULL;
    cn_buf_fini(buf);
    return data;
}
