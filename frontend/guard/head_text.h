/* frontend/guard/head_text.h - headers that go into the head of an answer while it is sent.
 *
 * libmicrohttpd copies each header of an answer twice and frees it three times, which takes more
 * time than all else that it does for an answer. So headers that libmicrohttpd does not have to
 * know are written into a buffer of the connection, and library_calls.h puts the buffer's text
 * before the end of the head when libmicrohttpd sends it. Used by the thread of the connection.
 */
#ifndef CN_FRONTEND_GUARD_HEAD_TEXT_H
#define CN_FRONTEND_GUARD_HEAD_TEXT_H

#include <sys/socket.h>

#include "core/memory/buf.h"

#define CN_HEAD_PARTS_MAX 2 /* libmicrohttpd sends a head alone or with a body */

typedef ssize_t cn_sendmsg_fn(int fd, const struct msghdr *msg, int flags);

/* Appends one header. Like libmicrohttpd, it leaves out a header with a control character, which
 * could end the line. */
void cn_head_text_put(struct cn_buf *text, struct cn_str name, struct cn_str value);

/* Sends the parts with `*text` before the last two bytes of the first part, which are the empty
 * line at the end of a head. Removes from `*text` what was sent of it. Returns how many bytes of
 * the parts were sent. Until the whole text was sent, these are at most the bytes before the text,
 * so that the caller comes back with the same end of the head. If no byte of the parts was sent,
 * returns -1 with EAGAIN. */
ssize_t cn_head_text_send(struct cn_str *text, int fd, const struct iovec *parts, size_t n,
                          int flags, cn_sendmsg_fn *send);

#endif
