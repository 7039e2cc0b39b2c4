/* grpc/transport/connection.c - a connection: its socket, its time limits, and its end. On its
 * loop.
 *
 * Reading happens when the socket is ready. Sending happens once at the end of a turn, for
 * everything that the turn has caused (flush). What the socket does not take is kept, and nothing
 * more is made until it is gone, so a client that does not read costs CN_GRPC_OUT_BYTES, what its
 * calls have queued, and the frames without data that nghttp2 has queued (resets, answers to
 * pings, heads). If there are too many of these, the client makes the server answer and does not
 * read, and is dropped.
 *
 * The timer has one meaning at a time:
 * - while shaking hands: the handshake must be done;
 * - later: the client is silent (a ping is sent), its answer to the ping is late, or bytes have
 *   waited for its socket for --write-timeout;
 * - when all was sent and the connection ends (`hung_up`): the client's end is awaited for a
 *   moment. If we closed at once, bytes that the client is still sending would reset the connection
 *   and could destroy our last answer.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access/certificate/certificate.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/intake/client_addresses.h"
#include "grpc/transport/transport_priv.h"
#include "metrics/counters/metrics.h"

#define PING_ANSWER_MS 20000
#define HANG_UP_MS 1000
#define READ_PER_TURN (1u << 20) /* bytes, so that other connections get their turn */
#define READS_PER_TURN 32        /* one of TLS brings at most a record of 16 KiB */
#define BYTES_BEHIND_ROOM 4096   /* see bytes_behind() */
#define FRAMES_EARLY 256         /* are sent before the end of the turn */
/* How many frames without data may wait, besides a head and a status for each open call. */
#define FRAMES_UNSENT_MAX 1000
#define BYTES_PER_LOOK 16384 /* of a client, between two looks at how many wait */

/* --- time */

static void
set_timer(struct cn_grpc_conn *conn, uint64_t in_ms)
{
    cn_timer_set(cn_loop_wheel(conn->site->loop), &conn->timer,
                 cn_loop_now_ms(conn->site->loop) + in_ms);
}

/* Hearing something only notes the time, so the timer may come too early and is then set again. */
void
cn_grpc_conn_watch_time(struct cn_grpc_conn *conn)
{
    const struct cn_grpc_limits *limits = &conn->site->grpc->limits;
    uint64_t at = conn->heard_ms + limits->keepalive_ms + (conn->pinged ? PING_ANSWER_MS : 0);

    if (conn->stuck_ms && conn->stuck_ms + limits->write_ms < at)
        at = conn->stuck_ms + limits->write_ms;
    cn_timer_set(cn_loop_wheel(conn->site->loop), &conn->timer, at);
}

void
cn_grpc_conn_log_drop(const struct cn_grpc_conn *conn, const char *why)
{
    cn_log(CN_LOG_DEBUG, "event=grpc_connection_dropped fd=%d why=\"%s\"", conn->fd, why);
}

static void
drop_late(struct cn_grpc_conn *conn, const char *why)
{
    cn_grpc_conn_log_drop(conn, why);
    cn_grpc_conn_drop(conn);
}

static void
on_time(struct cn_timer *timer)
{
    struct cn_grpc_conn *conn = cn_container_of(timer, struct cn_grpc_conn, timer);
    const struct cn_grpc_limits *limits = &conn->site->grpc->limits;
    uint64_t now_ms = cn_loop_now_ms(conn->site->loop);

    if (conn->hung_up) {
        cn_grpc_conn_drop(conn);
    } else if (conn->shaking_hands) {
        drop_late(conn, "the TLS handshake took too long (header-timeout)");
    } else if (conn->stuck_ms && now_ms >= conn->stuck_ms + limits->write_ms) {
        drop_late(conn, "the client reads too slowly (write-timeout)");
    } else if (now_ms < conn->heard_ms + limits->keepalive_ms) {
        cn_grpc_conn_watch_time(conn);
    } else if (conn->pinged && now_ms >= conn->heard_ms + limits->keepalive_ms + PING_ANSWER_MS) {
        drop_late(conn, "the client does not answer a ping (grpc-keepalive)");
    } else {
        if (!conn->pinged)
            nghttp2_submit_ping(conn->h2, NGHTTP2_FLAG_NONE, NULL);
        conn->pinged = true;
        cn_grpc_conn_touch(conn);
        cn_grpc_conn_watch_time(conn);
    }
}

/* --- the end */

void
cn_grpc_conn_drop(struct cn_grpc_conn *conn)
{
    struct cn_grpc_site *site = conn->site;

    while (!cn_list_empty(&conn->calls)) {
        struct cn_grpc_call *call = cn_container_of(conn->calls.next, struct cn_grpc_call, link);

        nghttp2_session_set_stream_user_data(conn->h2, call->stream, NULL);
        cn_grpc_call_closed(call);
    }
    cn_grpc_report_sent(site);
    cn_loop_unwatch(site->loop, &conn->watch);
    cn_timer_cancel(&conn->timer);
    cn_list_remove(&conn->flush.link);
    cn_list_remove(&conn->link);
    cn_arena_fini(&conn->head.arena);
    cn_unread_done(site->loop, &conn->unread);
    cn_buf_fini(&conn->out);
    if (conn->h2)
        nghttp2_session_del(conn->h2);
    if (conn->tls)
        gnutls_deinit(conn->tls);
    cn_certificate_destroy(conn->certificate);
    close(conn->fd);
    cn_client_address_release(conn->from, CN_ADDRESS_GRPC + conn->server->port);
    atomic_fetch_sub_explicit(&conn->server->n_conns, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&site->n_conns, 1, memory_order_relaxed);
    cn_metrics_sub(cn_loop_metrics(site->loop), CN_M_GRPC_CONNECTIONS, 1);
    cn_free(conn);
}

void
cn_grpc_conn_drain(struct cn_grpc_conn *conn)
{
    struct cn_list *node, *next;

    if (conn->shaking_hands) {
        cn_grpc_conn_drop(conn); /* it has no calls yet */
        return;
    }
    if (conn->draining)
        return;
    conn->draining = true;
    nghttp2_submit_goaway(conn->h2, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(conn->h2), NGHTTP2_NO_ERROR, NULL,
                          0);
    cn_list_for_each_safe(node, next, &conn->calls) {
        struct cn_grpc_call *call = cn_container_of(node, struct cn_grpc_call, link);

        if (call->opened && call->method->on_drain)
            call->method->on_drain(call);
    }
    cn_grpc_conn_touch(conn);
}

/* --- the end of a turn */

/* Sends what is left of TLS's goodbye, and then closes our side. */
static void
end_output(struct cn_grpc_conn *conn)
{
    if (cn_grpc_conn_send_rest(conn) || conn->failed)
        shutdown(conn->fd, SHUT_WR);
}

/* Everything is sent and nothing more will come: waits for the client's end. */
static void
hang_up(struct cn_grpc_conn *conn)
{
    conn->hung_up = true;
    if (conn->tls) {
        gnutls_bye(conn->tls, GNUTLS_SHUT_WR);
        cn_grpc_conn_send_sealed(conn);
    }
    end_output(conn);
    set_timer(conn, HANG_UP_MS);
}

/* The end of the turn: sends what the calls have to send. */
static void
on_flush(struct cn_deferred *deferred)
{
    struct cn_grpc_conn *conn = cn_container_of(deferred, struct cn_grpc_conn, flush);
    const bool more = cn_grpc_conn_send_all(conn);

    cn_grpc_report_sent(conn->site);
    if (!conn->failed)
        cn_grpc_conn_count_unread(conn);
    if (conn->failed) {
        cn_grpc_conn_drop(conn);
    } else if (!conn->hung_up && conn->out.len == 0 && !more &&
               (!nghttp2_session_want_read(conn->h2) ||
                (conn->draining && cn_list_empty(&conn->calls))) &&
               !nghttp2_session_want_write(conn->h2)) {
        hang_up(conn);
    }
}

void
cn_grpc_conn_touch(struct cn_grpc_conn *conn)
{
    cn_loop_defer(conn->site->loop, &conn->flush);
}

/* --- reading */

void
cn_grpc_conn_cut(struct cn_grpc_conn *conn)
{
    if (!conn->failed) {
        cn_metrics_add(cn_loop_metrics(conn->site->loop), CN_M_GRPC_CUT, 1);
        cn_log(CN_LOG_DEBUG,
               "event=grpc_connection_cut fd=%d why=\"too many cancelled calls in a second "
               "(grpc-max-resets)\"",
               conn->fd);
    }
    conn->failed = true;
}

static bool
has_too_many_unsent(const struct cn_grpc_conn *conn)
{
    return nghttp2_session_get_outbound_queue_size(conn->h2) >
           FRAMES_UNSENT_MAX + 2 * (size_t)conn->site->grpc->limits.streams;
}

/* Gives the bytes to nghttp2, which calls h2_session.c, in steps of this many. Returns false if the
 * connection must end. */
static bool
feed(struct cn_grpc_conn *conn, const uint8_t *bytes, size_t len, size_t step)
{
    struct cn_grpc_site *site = conn->site;
    size_t at, n;

    if (!cn_h2_guard_feed(&conn->guard, &site->grpc->h2_limits, conn->from, bytes, len)) {
        cn_grpc_conn_cut(conn);
        return false;
    }
    for (at = 0; at < len; at += n) {
        n = len - at < step ? len - at : step;
        if (nghttp2_session_mem_recv(conn->h2, bytes + at, n) < 0)
            return false;
        if (nghttp2_session_get_outbound_queue_size(conn->h2) > FRAMES_EARLY)
            cn_grpc_conn_send_all(conn); /* so that calls which are over give their memory back */
        if (conn->failed)
            return false;
        if (has_too_many_unsent(conn)) {
            cn_grpc_conn_log_drop(conn, "the client does not read the answers to its frames");
            return false;
        }
    }
    return true;
}

/* Takes `len` bytes that were read, the first of them into `room`. These are the payload of one
 * frame and are given to nghttp2 together, because their call may end in the next step, and the
 * room with it. */
static bool
take(struct cn_grpc_conn *conn, struct iovec room, size_t len)
{
    const size_t n = room.iov_len < len ? room.iov_len : len;

    return (n == 0 || feed(conn, room.iov_base, n, n)) &&
           (n == len || feed(conn, conn->site->in, len - n, BYTES_PER_LOOK));
}

/* How many bytes to read behind those that go to `room`. Behind a large frame there is most often
 * the head of one that has room, too. */
static size_t
bytes_behind(struct iovec room)
{
    return room.iov_len < CN_GRPC_IN_BYTES ? CN_GRPC_IN_BYTES : BYTES_BEHIND_ROOM;
}

/* Reads into `room`, and what comes behind it into the site's buffer. */
static ptrdiff_t
read_some(struct cn_grpc_conn *conn, struct iovec room)
{
    const size_t more = bytes_behind(room);
    struct iovec parts[] = {room, {conn->site->in, more}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ptrdiff_t n;

    if (!conn->tls && room.iov_len == 0)
        return recv(conn->fd, conn->site->in, more, MSG_DONTWAIT);
    if (!conn->tls)
        return recvmsg(conn->fd, &message, MSG_DONTWAIT);
    n = cn_grpc_tls_recv(conn, conn->site->in, CN_GRPC_IN_BYTES);
    if (conn->site->sealed.len > 0) {
        const int error = errno;

        cn_grpc_conn_send_sealed(conn); /* an alert */
        errno = error;
    }
    return n;
}

static void
on_readable(struct cn_grpc_conn *conn)
{
    size_t sum = 0;
    ptrdiff_t n = -1;

    for (unsigned i = 0; i < READS_PER_TURN && sum < READ_PER_TURN; i++) {
        const struct iovec room =
            conn->tls || conn->hung_up ? (struct iovec){0} : cn_grpc_session_room(conn);

        n = read_some(conn, room);
        if (n <= 0)
            break;
        if (!conn->hung_up && !take(conn, room, (size_t)n)) {
            cn_grpc_conn_drop(conn);
            return;
        }
        if (!conn->tls && (size_t)n < room.iov_len + bytes_behind(room))
            break;
        sum += (size_t)n;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        cn_grpc_conn_drop(conn);
        return;
    }
    conn->heard_ms = cn_loop_now_ms(conn->site->loop);
    if (conn->hung_up)
        return;
    if (conn->pinged) {
        conn->pinged = false;
        cn_grpc_conn_watch_time(conn);
    }
    cn_grpc_conn_touch(conn);
}

/* Begins to speak HTTP/2. Returns false when that is not possible. */
static bool
begin(struct cn_grpc_conn *conn)
{
    conn->shaking_hands = false;
    conn->heard_ms = cn_loop_now_ms(conn->site->loop);
    if (!cn_grpc_session_begin(conn))
        return false;
    cn_grpc_conn_watch_time(conn);
    cn_grpc_conn_touch(conn);
    return true;
}

static void
shake_hands(struct cn_grpc_conn *conn)
{
    int rc = cn_grpc_conn_send_rest(conn) ? cn_grpc_tls_shake(conn) : 0;

    cn_grpc_conn_send_sealed(conn);
    if (conn->failed || rc < 0 || (rc > 0 && !begin(conn)))
        cn_grpc_conn_drop(conn);
    else if (rc > 0)
        on_readable(conn);
}

static void
on_events(struct cn_watch *watch, uint32_t events)
{
    struct cn_grpc_conn *conn = cn_container_of(watch, struct cn_grpc_conn, watch);

    if (conn->shaking_hands) {
        shake_hands(conn);
        return;
    }
    if ((events & EPOLLOUT) && conn->hung_up)
        end_output(conn);
    else if (events & EPOLLOUT)
        cn_grpc_conn_touch(conn);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        on_readable(conn);
}

void
cn_grpc_conn_arrive(struct cn_msg *msg)
{
    struct cn_grpc_conn *conn = cn_container_of(msg, struct cn_grpc_conn, arrive);
    struct cn_grpc_site *site = conn->site;

    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CONNECTIONS, 1);
    cn_list_push_back(&site->conns, &conn->link);
    cn_list_init(&conn->calls);
    cn_list_init(&conn->flush.link);
    conn->flush.fn = on_flush;
    cn_timer_init(&conn->timer, on_time);
    cn_buf_init(&conn->out, 0);
    cn_arena_init(&conn->head.arena);
    cn_h2_guard_init(&conn->guard, &site->grpc->h2_limits);
    conn->watch.fn = on_events;
    if (conn->failed || (!conn->shaking_hands && !begin(conn)) ||
        cn_loop_watch(site->loop, &conn->watch, conn->fd, EPOLLIN | EPOLLRDHUP, NULL)) {
        cn_grpc_conn_drop(conn);
        return;
    }
    if (conn->shaking_hands)
        set_timer(conn, site->grpc->limits.handshake_ms);
}
