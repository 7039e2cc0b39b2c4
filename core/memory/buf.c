/* core/memory/buf.c - a byte buffer that doubles when it is full. Owned by its holder; no locks.
 *
 * Memory that was allocated stays until fini or take, so a buffer that is filled again and again
 * soon allocates nothing. Memory from an allocator is given back with each reset, because others
 * need it, too. The limit (max_bytes) is on the content, not on the memory. */
#include "core/memory/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/number.h"

#define FIRST_CAP 256
/* With memory from an allocator, one large piece has this much room for more behind it. */
#define SPARE_BYTES 4096

void
cn_buf_init(struct cn_buf *buf, size_t max_bytes)
{
    *buf = (struct cn_buf){.max_bytes = max_bytes};
}

static void
free_data(struct cn_buf *buf)
{
    if (buf->from_allocator)
        buf->allocator->give_back(buf->allocator, buf->data);
    else
        cn_free(buf->data);
}

void
cn_buf_fini(struct cn_buf *buf)
{
    free_data(buf);
    *buf = (struct cn_buf){.max_bytes = buf->max_bytes, .allocator = buf->allocator};
}

void
cn_buf_reset(struct cn_buf *buf)
{
    if (buf->from_allocator)
        cn_buf_fini(buf);
    buf->len = 0;
    buf->failed = 0;
}

void
cn_buf_set_allocator(struct cn_buf *buf, struct cn_buf_allocator *allocator)
{
    cn_assert(buf->len == 0);
    if (buf->from_allocator || (allocator && buf->cap >= allocator->min_bytes))
        cn_buf_fini(buf);
    buf->allocator = allocator;
}

void
cn_buf_disown(struct cn_buf *buf)
{
    if (!buf->from_allocator)
        return;
    buf->from_allocator = false;
    buf->data = NULL;
    buf->len = buf->cap = 0;
}

/* Moves the content to `data`, which has room for `cap` bytes and one more. */
static void
move_to(struct cn_buf *buf, char *data, size_t cap, bool from_allocator)
{
    if (buf->len)
        memcpy(data, buf->data, buf->len);
    free_data(buf);
    buf->data = data;
    buf->cap = cap;
    buf->from_allocator = from_allocator;
}

/* Growing by one large piece takes only what that needs from the allocator, because others use it,
 * too. Returns false when it has no room. */
static bool
move_to_allocator(struct cn_buf *buf, size_t need, size_t cap)
{
    char *data;

    if (!buf->allocator || need < buf->allocator->min_bytes)
        return false;
    if (need - buf->len > need / 2 && cap > need + SPARE_BYTES)
        cap = need + SPARE_BYTES;
    data = buf->allocator->take(buf->allocator, cap + 1);
    if (data)
        move_to(buf, data, cap, true);
    return data != NULL;
}

static bool
move_to_heap(struct cn_buf *buf, size_t cap)
{
    char *data = cn_try_realloc(buf->from_allocator ? NULL : buf->data, cap + 1);

    if (!data)
        return false;
    if (buf->from_allocator)
        move_to(buf, data, cap, false);
    buf->data = data;
    buf->cap = cap;
    return true;
}

/* Makes the capacity at least `need`. One byte more than `cap` is always allocated, so that
 * cn_buf_take can add its NUL without moving anything. */
static int
grow(struct cn_buf *buf, size_t need)
{
    size_t limit = buf->max_bytes ? buf->max_bytes : SIZE_MAX / 2;
    size_t cap = buf->cap ? buf->cap : FIRST_CAP;

    while (cap < need)
        cap = cap > limit / 2 ? limit : cap * 2;
    if (cap > limit)
        cap = limit;
    return move_to_allocator(buf, need, cap) || move_to_heap(buf, cap) ? 0 : -1;
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
    char *data;

    if (buf->from_allocator) /* the caller gets memory from the heap in any case */
        move_to(buf, cn_alloc(buf->len + 1), buf->len, false);
    data = buf->data ? buf->data : cn_alloc(1);
    data[buf->len] = '\0';
    if (len)
        *len = buf->len;
    buf->data = NULL;
    cn_buf_fini(buf);
    return data;
}
