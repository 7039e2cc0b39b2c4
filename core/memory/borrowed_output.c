/* core/memory/borrowed_output.c - the buffer's bytes and lent ones as one vector for the kernel. */
#include "core/memory/borrowed_output.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define VECTOR_MAX 32 /* pieces of one call; a socket takes fewer large ones anyway */

void
cn_lents_init(struct cn_lents *lents)
{
    *lents = (struct cn_lents){0};
}

void
cn_lents_fini(struct cn_lents *lents)
{
    cn_free(lents->list);
    cn_lents_init(lents);
}

void
cn_lents_add(struct cn_lents *lents, const struct cn_buf *buf, struct cn_str bytes,
             uint32_t *unsent)
{
    struct cn_lent *list;

    if (lents->n == lents->cap) { /* bounded by the rows in flight and their parts */
        lents->cap = lents->cap ? 2 * lents->cap : 8;
        list = cn_alloc(lents->cap * sizeof(*list));
        if (lents->n)
            memcpy(list, lents->list, lents->n * sizeof(*list));
        cn_free(lents->list);
        lents->list = list;
    }
    lents->list[lents->n++] = (struct cn_lent){buf->len, bytes, unsent};
    lents->bytes += bytes.len;
    if (unsent)
        ++*unsent;
}

static unsigned
put(struct iovec *vector, unsigned n, const char *bytes, size_t len, size_t *left)
{
    if (len > *left)
        len = *left;
    if (len == 0)
        return n;
    vector[n] = (struct iovec){(void *)(uintptr_t)bytes, len};
    *left -= len;
    return n + 1;
}

/* Moves forward by what the socket took. */
static void
went_out(struct cn_lents *lents, size_t *sent, size_t bytes)
{
    while (cn_lents_pending(lents)) {
        struct cn_lent *next = &lents->list[lents->done];
        size_t before = next->at - *sent, rest = next->bytes.len - lents->sent;

        if (bytes < before)
            break;
        *sent = next->at;
        bytes -= before;
        if (bytes < rest) {
            lents->sent += bytes;
            return;
        }
        bytes -= rest;
        lents->sent = 0;
        lents->done++;
        if (next->unsent)
            --*next->unsent;
    }
    *sent += bytes;
}

ssize_t
cn_lents_send(struct cn_lents *lents, const struct cn_buf *buf, size_t *sent, size_t max, int fd,
              int flags)
{
    struct iovec vector[VECTOR_MAX];
    struct msghdr message = {.msg_iov = vector};
    size_t at = *sent, begun = lents->sent;
    unsigned n = 0;
    ssize_t rc;

    for (uint32_t i = lents->done; i < lents->n && n + 3 <= VECTOR_MAX; i++) {
        const struct cn_lent *lent = &lents->list[i];

        n = put(vector, n, buf->data + at, lent->at - at, &max);
        n = put(vector, n, lent->bytes.ptr + begun, lent->bytes.len - begun, &max);
        at = lent->at;
        begun = 0;
        if (i + 1 == lents->n)
            n = put(vector, n, buf->data + at, buf->len - at, &max);
    }
    if (!cn_lents_pending(lents))
        n = put(vector, n, buf->data + at, buf->len - at, &max);
    message.msg_iovlen = n;
    rc = sendmsg(fd, &message, flags);
    if (rc > 0)
        went_out(lents, sent, (size_t)rc);
    return rc;
}

void
cn_lents_consume(struct cn_lents *lents, size_t bytes)
{
    const uint32_t left = lents->n - lents->done;

    if (left)
        memmove(lents->list, lents->list + lents->done, left * sizeof(*lents->list));
    lents->n = left;
    lents->done = 0;
    for (uint32_t i = 0; i < left; i++) {
        cn_assert(lents->list[i].at >= bytes);
        lents->list[i].at -= bytes;
    }
}
