/* frontend/http/transport/http_output.c - sends what connections have to send. Owned by the loop
 * thread.
 *
 * An answer is sent when it is given, by one system call for head and body, and a large body is not
 * copied. Only what the socket does not take is kept, and the socket is watched until it takes
 * more. With TLS, a head and a small body become one record.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/memory/buf.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"

#define RECORD_BYTES 16384   /* the most that a record of TLS can hold */
#define RECORDS_PER_TURN 64u /* so that other connections get their turn */

void
cn_http_out_watch(struct cn_http_conn *conn, bool on)
{
    const uint32_t events = CN_HTTP_EVENTS | (on ? EPOLLOUT : 0);

    if (on == conn->watches_output)
        return;
    conn->watches_output = on;
    if (cn_loop_rewatch(conn->listener->loop, &conn->watch, events, NULL)) {
        conn->failed = true;
        cn_http_conn_go_on(conn);
    }
}

/* Sends the parts. Returns how many bytes the socket took; -1 with errno. */
static ssize_t
write_parts(struct cn_http_conn *conn, struct iovec *parts, size_t n)
{
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};

    if (conn->tls || n == 1)
        return cn_http_conn_send(conn, parts[0].iov_base, parts[0].iov_len);
    return sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sending has failed. Returns true if it may be tried again at once. */
static bool
is_worth_a_try(struct cn_http_conn *conn)
{
    if (errno == EINTR)
        return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        cn_http_out_watch(conn, true);
    } else {
        conn->failed = true;
        cn_http_conn_go_on(conn);
    }
    return false;
}

static size_t
add_part(struct iovec *parts, size_t n, struct cn_str bytes)
{
    if (bytes.len)
        parts[n++] = (struct iovec){(void *)(uintptr_t)bytes.ptr, bytes.len};
    return n;
}

/* Takes up to `n` bytes off the front of the text. Returns how many. */
static size_t
take_off(struct cn_str *text, size_t n)
{
    if (n > text->len)
        n = text->len;
    if (n)
        *text = (struct cn_str){text->ptr + n, text->len - n};
    return n;
}

/* The first `n` bytes of what waits were sent. */
static void
forget_sent(struct cn_http_out *out, size_t n)
{
    struct cn_str kept = {out->kept.data + out->kept_at, out->kept.len - out->kept_at};
    const size_t of_kept = out->kept.len ? take_off(&kept, n) : 0;

    n -= of_kept;
    out->kept_at += of_kept;
    if (out->kept.len && out->kept_at == out->kept.len) {
        cn_buf_fini(&out->kept);
        out->kept_at = 0;
    }
    n -= take_off(&out->body, n);
    take_off(&out->tail, n);
}

void
cn_http_out_push(struct cn_http_conn *conn)
{
    struct cn_http_out *out = &conn->out;
    unsigned writes = 0;

    while (!cn_http_out_is_empty(conn) && !conn->failed) {
        const struct cn_str kept = {out->kept.data + out->kept_at, out->kept.len - out->kept_at};
        struct iovec parts[3];
        size_t n_parts = out->kept.len ? add_part(parts, 0, kept) : 0;
        ssize_t n;

        n_parts = add_part(parts, n_parts, out->body);
        n_parts = add_part(parts, n_parts, out->tail);
        if (writes++ == RECORDS_PER_TURN) {
            cn_http_conn_go_on(conn);
            return;
        }
        n = write_parts(conn, parts, n_parts);
        if (n >= 0)
            forget_sent(out, (size_t)n);
        else if (!is_worth_a_try(conn))
            return;
    }
    cn_http_out_watch(conn, false);
}

/* Keeps a copy of bytes. */
static void
keep(struct cn_http_conn *conn, struct cn_str bytes)
{
    if (bytes.len && cn_buf_append(&conn->out.kept, bytes.ptr, bytes.len)) {
        conn->failed = true;
        cn_http_conn_go_on(conn);
    }
}

/* Keeps the parts for cn_http_out_push(). */
static void
put(struct cn_http_conn *conn, struct cn_str head, struct cn_str body, bool copies_body,
    struct cn_str tail)
{
    keep(conn, head);
    if (copies_body) {
        keep(conn, body);
        keep(conn, tail);
        return;
    }
    conn->out.body = body;
    conn->out.tail = tail;
}

void
cn_http_out_send(struct cn_http_conn *conn, struct cn_str head, struct cn_str body,
                 bool copies_body, struct cn_str tail)
{
    struct iovec parts[3];
    size_t n_parts, done;
    ssize_t n;

    if (conn->failed)
        return;
    if (conn->tls || conn->out.kept.len) {
        put(conn, head, body, copies_body || head.len + body.len + tail.len <= RECORD_BYTES, tail);
        cn_http_out_push(conn);
        return;
    }
    n_parts = add_part(parts, 0, head);
    n_parts = add_part(parts, n_parts, body);
    n_parts = add_part(parts, n_parts, tail);
    n = write_parts(conn, parts, n_parts);
    if (n < 0 && !is_worth_a_try(conn) && conn->failed)
        return;
    done = n < 0 ? 0 : (size_t)n;
    if (done == head.len + body.len + tail.len)
        return;
    done -= take_off(&head, done);
    done -= take_off(&body, done);
    take_off(&tail, done);
    put(conn, head, body, copies_body, tail);
    cn_http_out_push(conn);
}

void
cn_http_out_keep_head(struct cn_http_conn *conn, struct cn_str head)
{
    keep(conn, head);
    conn->out.has_new_head = true;
    cn_http_conn_go_on(conn);
}

void
cn_http_out_refuse(struct cn_http_conn *conn, int code, unsigned status, const char *message)
{
    struct cn_buf answer;

    cn_buf_init(&answer, 0);
    cn_http_format_refusal(code, status, message, &answer);
    cn_http_out_send(conn, cn_buf_str(&answer), CN_STR(""), false, CN_STR(""));
    cn_buf_fini(&answer);
    conn->discards = conn->failed = true;
}
