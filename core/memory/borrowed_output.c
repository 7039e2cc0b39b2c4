/* core/memory/borrowed_output.c - sends a buffer and the pieces borrowed for it with one system
 * call.
 *
 * The output is the buffer's bytes with the pieces between them. A piece's `at` is its offset in
 * the buffer, which falls when the front of the buffer is dropped (cn_borrowed_output_consume). Two
 * numbers say how far the output is: *sent in the buffer, and `sent` in the piece that comes next.
 * A socket may take any part of a call's bytes, so either number can stop in the middle. */
#include "core/memory/borrowed_output.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"

#define VECTOR_MAX 32 /* the pieces of one call; a socket takes fewer large ones anyway */

bool
cn_borrow_pays(size_t bytes)
{
    return bytes >= CN_BORROW_MIN_BYTES && cn_tuned(CN_TUNING_BORROWED_OUTPUT);
}

void
cn_borrowed_output_init(struct cn_borrowed_output *borrowed)
{
    *borrowed = (struct cn_borrowed_output){0};
}

void
cn_borrowed_output_fini(struct cn_borrowed_output *borrowed)
{
    cn_free(borrowed->list);
    cn_borrowed_output_init(borrowed);
}

void
cn_borrowed_output_add(struct cn_borrowed_output *borrowed, const struct cn_buf *buf,
                       struct cn_str bytes, uint32_t *unsent)
{
    struct cn_borrowed_piece *list;

    if (borrowed->n == borrowed->cap) { /* bounded by the rows in flight and their parts */
        borrowed->cap = borrowed->cap ? 2 * borrowed->cap : 8;
        list = cn_alloc(borrowed->cap * sizeof(*list));
        if (borrowed->n)
            memcpy(list, borrowed->list, borrowed->n * sizeof(*list));
        cn_free(borrowed->list);
        borrowed->list = list;
    }
    borrowed->list[borrowed->n++] = (struct cn_borrowed_piece){buf->len, bytes, unsent};
    borrowed->bytes += bytes.len;
    if (unsent)
        ++*unsent;
}

/* Adds bytes to the vector, as far as `left` allows. Returns the new number of elements. */
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

/* Moves the two positions forward by the bytes that the socket took. */
static void
went_out(struct cn_borrowed_output *borrowed, size_t *sent, size_t bytes)
{
    while (cn_borrowed_output_pending(borrowed)) {
        struct cn_borrowed_piece *next = &borrowed->list[borrowed->done];
        size_t before = next->at - *sent, rest = next->bytes.len - borrowed->sent;

        if (bytes < before)
            break;
        *sent = next->at;
        bytes -= before;
        if (bytes < rest) {
            borrowed->sent += bytes;
            return;
        }
        bytes -= rest;
        borrowed->sent = 0;
        borrowed->done++;
        if (next->unsent)
            --*next->unsent;
    }
    *sent += bytes;
}

ssize_t
cn_borrowed_output_send(struct cn_borrowed_output *borrowed, const struct cn_buf *buf, size_t *sent,
                        size_t max, int fd, int flags)
{
    struct iovec vector[VECTOR_MAX];
    struct msghdr message = {.msg_iov = vector};
    size_t at = *sent, begun = borrowed->sent;
    unsigned n = 0;
    ssize_t rc;

    for (uint32_t i = borrowed->done; i < borrowed->n && n + 3 <= VECTOR_MAX; i++) {
        const struct cn_borrowed_piece *piece = &borrowed->list[i];

        n = put(vector, n, buf->data + at, piece->at - at, &max);
        n = put(vector, n, piece->bytes.ptr + begun, piece->bytes.len - begun, &max);
        at = piece->at;
        begun = 0;
        if (i + 1 == borrowed->n)
            n = put(vector, n, buf->data + at, buf->len - at, &max);
    }
    if (!cn_borrowed_output_pending(borrowed))
        n = put(vector, n, buf->data + at, buf->len - at, &max);
    message.msg_iovlen = n;
    rc = sendmsg(fd, &message, flags);
    if (rc > 0)
        went_out(borrowed, sent, (size_t)rc);
    return rc;
}

void
cn_borrowed_output_consume(struct cn_borrowed_output *borrowed, size_t bytes)
{
    const uint32_t left = borrowed->n - borrowed->done;

    if (left)
        memmove(borrowed->list, borrowed->list + borrowed->done, left * sizeof(*borrowed->list));
    borrowed->n = left;
    borrowed->done = 0;
    for (uint32_t i = 0; i < left; i++) {
        cn_assert(borrowed->list[i].at >= bytes);
        borrowed->list[i].at -= bytes;
    }
}
