/* grpc/transport/outbox.c - the frames that a connection sends together, as parts for sendmsg(). On
 * the connection's loop.
 *
 * nghttp2 makes the head of a frame, and the payload may lie in an answer of many megabytes. Small
 * bytes are copied, and lie behind each other, so that they are one part. Large runs are parts of
 * their own, and are copied only if the socket does not take them.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/errors/panic.h"
#include "grpc/transport/transport_priv.h"

static void
add_part(struct cn_grpc_outbox *out, const void *bytes, size_t len)
{
    cn_assert(out->n_parts < CN_GRPC_OUT_PARTS);
    out->parts[out->n_parts++] = (struct iovec){(void *)(uintptr_t)bytes, len};
    out->bytes += len;
}

void
cn_grpc_outbox_copy(struct cn_grpc_outbox *out, const void *bytes, size_t len)
{
    uint8_t *at = out->copied + out->n_copied;
    struct iovec *last = out->n_parts ? &out->parts[out->n_parts - 1] : NULL;

    cn_assert(out->n_copied + len <= CN_GRPC_OUT_ROOM);
    memcpy(at, bytes, len);
    out->n_copied += len;
    if (last && (uint8_t *)last->iov_base + last->iov_len == at) {
        last->iov_len += len;
        out->bytes += len;
    } else {
        add_part(out, at, len);
    }
}

void
cn_grpc_outbox_borrow(struct cn_grpc_outbox *out, const void *bytes, size_t len)
{
    if (len < CN_GRPC_OUT_BORROWED)
        cn_grpc_outbox_copy(out, bytes, len);
    else
        add_part(out, bytes, len);
}

/* Finds the byte at `at`: sets *skip to its place in its part. Returns the number of the part. */
static unsigned
find_part(const struct cn_grpc_outbox *out, size_t at, size_t *skip)
{
    unsigned i;

    for (i = 0; i < out->n_parts && at >= out->parts[i].iov_len; i++)
        at -= out->parts[i].iov_len;
    *skip = at;
    return i;
}

/* Like send(), from `at` on. */
static ssize_t
send_from(const struct cn_grpc_outbox *out, int fd, size_t at)
{
    struct iovec parts[CN_GRPC_OUT_PARTS];
    size_t skip;
    const unsigned first = find_part(out, at, &skip);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = out->n_parts - first};

    memcpy(parts, out->parts + first, message.msg_iovlen * sizeof(*parts));
    parts[0].iov_base = (uint8_t *)parts[0].iov_base + skip;
    parts[0].iov_len -= skip;
    if (message.msg_iovlen == 1) /* small answers, for which it costs less */
        return send(fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ptrdiff_t
cn_grpc_outbox_send(const struct cn_grpc_outbox *out, int fd)
{
    size_t done = 0;

    while (done < out->bytes) {
        ssize_t n = send_from(out, fd, done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? (ptrdiff_t)done : -1;
        done += (size_t)n;
    }
    return (ptrdiff_t)done;
}

int
cn_grpc_outbox_keep(const struct cn_grpc_outbox *out, size_t at, struct cn_buf *to)
{
    size_t skip;
    int rc = 0;

    for (unsigned i = find_part(out, at, &skip); !rc && i < out->n_parts; i++, skip = 0)
        rc = cn_buf_append(to, (const char *)out->parts[i].iov_base + skip,
                           out->parts[i].iov_len - skip);
    return rc;
}

void
cn_grpc_outbox_clear(struct cn_grpc_outbox *out)
{
    out->n_copied = out->bytes = 0;
    out->n_parts = 0;
}
