/* frontend/guard/head_text.c - see head_text.h. */
#include "frontend/guard/head_text.h"

#include <errno.h>

#include "core/errors/panic.h"

#define END_BYTES 2 /* the empty line: CR LF */

void
cn_head_text_put(struct cn_buf *text, struct cn_str name, struct cn_str value)
{
    char *at;

    if (cn_text_without_control(name.ptr, name.len) < name.len ||
        cn_text_without_control(value.ptr, value.len) < value.len)
        return;
    at = cn_buf_reserve(text, name.len + value.len + 4);
    if (!at)
        return;
    memcpy(at, name.ptr, name.len);
    memcpy(at + name.len, ": ", 2);
    if (value.len)
        memcpy(at + name.len + 2, value.ptr, value.len);
    memcpy(at + name.len + 2 + value.len, "\r\n", 2);
    text->len += name.len + value.len + 4;
}

ssize_t
cn_head_text_send(struct cn_str *text, int fd, const struct iovec *parts, size_t n, int flags,
                  cn_sendmsg_fn *send)
{
    struct iovec all[CN_HEAD_PARTS_MAX + 2];
    const struct msghdr msg = {.msg_iov = all, .msg_iovlen = n + 2};
    size_t before, of_text;
    ssize_t sent;

    cn_assert(n > 0 && n <= CN_HEAD_PARTS_MAX && parts[0].iov_len >= END_BYTES);
    before = parts[0].iov_len - END_BYTES;
    all[0] = (struct iovec){parts[0].iov_base, before};
    all[1] = (struct iovec){(void *)(uintptr_t)text->ptr, text->len};
    all[2] = (struct iovec){(char *)parts[0].iov_base + before, END_BYTES};
    for (size_t i = 1; i < n; i++)
        all[2 + i] = parts[i];
    sent = send(fd, &msg, flags);
    if (sent <= (ssize_t)before)
        return sent;
    of_text = (size_t)sent - before < text->len ? (size_t)sent - before : text->len;
    *text = (struct cn_str){text->ptr + of_text, text->len - of_text};
    sent -= (ssize_t)of_text;
    if (sent > 0)
        return sent;
    errno = EAGAIN;
    return -1;
}
