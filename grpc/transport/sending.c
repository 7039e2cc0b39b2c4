/* grpc/transport/sending.c - sends a connection's frames, as far as the socket takes them. On the
 * connection's loop.
 *
 * nghttp2 makes frames for the outbox (outbox.c), CN_GRPC_OUT_BYTES at a time, and these are sent
 * together. What the socket does not take of them is copied to conn->out, and nothing more is made
 * until it is gone. The messages that the frames are made of are freed at the end of the turn.
 */
#include <sys/epoll.h>

#include "grpc/transport/transport_priv.h"

#define SENDS_PER_TURN 4 /* of CN_GRPC_OUT_BYTES */
/* How much a client must read of the bytes that wait, in each --write-timeout. */
#define PROGRESS_BYTES (256u << 10)

static void
watch_output(struct cn_grpc_conn *conn, bool on)
{
    const uint32_t events = EPOLLIN | EPOLLRDHUP | (on ? EPOLLOUT : 0);

    if (on == conn->watches_output)
        return;
    conn->watches_output = on;
    if (cn_loop_rewatch(conn->site->loop, &conn->watch, events, NULL))
        conn->failed = true;
}

/* The socket has taken `n` of the bytes that wait. */
static void
note_progress(struct cn_grpc_conn *conn, size_t n)
{
    if ((conn->out_at + n) / PROGRESS_BYTES > conn->out_at / PROGRESS_BYTES)
        conn->stuck_ms = cn_loop_now_ms(conn->site->loop);
    conn->out_at += n;
}

bool
cn_grpc_conn_send_rest(struct cn_grpc_conn *conn)
{
    struct cn_grpc_outbox *out = &conn->site->out;
    ptrdiff_t n;

    if (conn->out.len == 0)
        return true;
    cn_grpc_outbox_borrow(out, conn->out.data + conn->out_at, conn->out.len - conn->out_at);
    n = cn_grpc_outbox_send(out, conn->fd);
    cn_grpc_outbox_clear(out);
    if (n < 0) {
        conn->failed = true;
        return false;
    }
    note_progress(conn, (size_t)n);
    if (conn->out_at < conn->out.len)
        return false;
    cn_buf_fini(&conn->out);
    conn->out_at = 0;
    conn->stuck_ms = 0;
    watch_output(conn, false);
    return true;
}

/* Keeps the bytes of the outbox from `at` on, behind those that wait. */
static void
keep(struct cn_grpc_conn *conn, size_t at)
{
    if (conn->out.len == 0)
        conn->stuck_ms = cn_loop_now_ms(conn->site->loop);
    if (cn_grpc_outbox_keep(&conn->site->out, at, &conn->out))
        conn->failed = true;
    watch_output(conn, true);
    if (!conn->shaking_hands && !conn->hung_up)
        cn_grpc_conn_watch_time(conn);
}

/* Empties the outbox: sends its bytes, or keeps them. */
static void
send_or_keep(struct cn_grpc_conn *conn)
{
    struct cn_grpc_outbox *out = &conn->site->out;
    ptrdiff_t n = conn->out.len > 0 ? 0 : cn_grpc_outbox_send(out, conn->fd);

    if (n < 0)
        conn->failed = true;
    else if ((size_t)n < out->bytes)
        keep(conn, (size_t)n);
    cn_grpc_outbox_clear(out);
}

void
cn_grpc_conn_send_sealed(struct cn_grpc_conn *conn)
{
    struct cn_buf *sealed = &conn->site->sealed;

    if (sealed->len > 0 && !conn->failed) {
        cn_grpc_outbox_borrow(&conn->site->out, sealed->data, sealed->len);
        send_or_keep(conn);
    }
    cn_buf_reset(sealed);
}

/* Asks nghttp2 for frames until the outbox is full. Returns false when nothing more is to be sent.
 */
static bool
fill(struct cn_grpc_conn *conn)
{
    struct cn_grpc_outbox *out = &conn->site->out;
    const uint8_t *bytes;
    ssize_t n;

    out->is_full = false;
    while (out->bytes + CN_GRPC_FRAME_BYTES <= CN_GRPC_OUT_BYTES) {
        n = nghttp2_session_mem_send(conn->h2, &bytes);
        if (n < 0)
            conn->failed = true;
        if (n <= 0)
            return out->is_full;
        cn_grpc_outbox_copy(out, bytes, (size_t)n);
    }
    return true;
}

/* Sends what `fill` has made, and keeps what the socket does not take. Returns true when all is
 * gone. */
static bool
send_filled(struct cn_grpc_conn *conn)
{
    struct cn_grpc_outbox *out = &conn->site->out;

    if (!conn->tls) {
        send_or_keep(conn);
    } else {
        conn->failed |= !cn_grpc_tls_seal(conn, out->copied, out->n_copied);
        cn_grpc_outbox_clear(out);
        cn_grpc_conn_send_sealed(conn);
    }
    return !conn->failed && conn->out.len == 0;
}

bool
cn_grpc_conn_send_all(struct cn_grpc_conn *conn)
{
    bool more = true;
    unsigned i;

    for (i = 0; more && !conn->failed && i < SENDS_PER_TURN; i++) {
        if (!cn_grpc_conn_send_rest(conn))
            return false;
        more = fill(conn);
        if (conn->site->out.bytes > 0 && !send_filled(conn))
            return false;
    }
    if (more && i == SENDS_PER_TURN)
        cn_grpc_conn_touch(conn);
    return more;
}

/* --- what waits for the socket */

/* Too many bytes wait for clients, and this connection's have waited for the longest time. */
static void
drop_unread(struct cn_unread *unread)
{
    struct cn_grpc_conn *conn = cn_container_of(unread, struct cn_grpc_conn, unread);

    cn_grpc_conn_log_drop(conn, "all unread answers together are too large (max-unread-answers)");
    conn->failed = true;
    cn_grpc_conn_touch(conn);
}

void
cn_grpc_conn_count_unread(struct cn_grpc_conn *conn)
{
    const size_t counted = conn->unread.bytes, now = conn->out.len - conn->out_at;

    if (now > counted) {
        conn->unread.drop = drop_unread;
        cn_unread_add(conn->site->loop, &conn->unread, now - counted);
    } else if (now < counted) {
        cn_unread_sub(conn->site->loop, &conn->unread, counted - now);
    }
}
