/* frontend/websocket/ws_io.c - the socket of a stream, and its times. Owned by the loop.
 *
 * Reading. While a client has as many unanswered steps as its credit, or has not read its answers,
 * its socket is not read. Most clients send nothing then, so the watch is changed only when bytes
 * come at such a time: a client that waits for each answer costs no system call for it.
 *
 * Pending bytes. One read may bring more messages than the client has credit for. wslay is given
 * the bytes in slices of 4 KiB, and the rest of what was read waits in `pending`. So a client that
 * ignores its credit costs at most one read and what fits into the socket's buffers.
 *
 * Turns. Messages that are refused need no credit, and a compressed one may be a thousand times as
 * large as its bytes. So once a turn has taken TURN_US, the rest of what came waits for the next.
 *
 * Messages collect in frames.out, and leave at the end of the turn. One timer looks at the stream
 * at each tick, half of the shortest limit, so a message costs no timer operation.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_conn.h"
#include "frontend/http/transport/http_discard.h"
#include "frontend/websocket/ws_stream.h"

#define READS_A_TURN 16  /* then other connections have their turn */
#define TURN_US 5000     /* a turn that has taken this long is over for the stream, too */
#define KEEP_BYTES 16384 /* a larger output buffer is freed when it is empty */

struct cn_loop *
cn_ws_loop(const struct cn_ws_stream *stream)
{
    return stream->site->listener->loop;
}

static bool
may_read(const struct cn_ws_stream *stream)
{
    if (stream->phase == CN_WS_CLOSING)
        return true; /* until the client has closed, too */
    return stream->phase != CN_WS_LEAVING && cn_ws_steps_has_room(stream) &&
           !cn_ws_io_is_full(stream);
}

static void
watch(struct cn_ws_stream *stream, bool reads, bool writes)
{
    const uint32_t events =
        EPOLLRDHUP | (reads ? (uint32_t)EPOLLIN : 0u) | (writes ? (uint32_t)EPOLLOUT : 0u);

    if (stream->reads == reads && stream->writes == writes)
        return;
    stream->reads = reads;
    stream->writes = writes;
    cn_loop_rewatch(cn_ws_loop(stream), stream->watch, events, NULL);
}

void
cn_ws_io_end(struct cn_ws_stream *stream)
{
    struct cn_http_conn *conn = stream->conn;

    if (stream->watch)
        cn_loop_unwatch(cn_ws_loop(stream), stream->watch);
    cn_timer_cancel(&stream->timer);
    if (stream->flush.link.next)
        cn_list_remove(&stream->flush.link);
    cn_unread_done(cn_ws_loop(stream), &stream->unread);
    conn->stream = NULL;
    stream->conn = NULL;
    atomic_store(&stream->left, true);
    cn_ws_site_remove(stream->site, stream);
    cn_http_upgrade_end(conn);
    cn_ws_steps_cancel(stream);
    cn_ws_go_on(stream);
}

/* --- writing */

/* Gives back the room of the bytes that have left. A client that reads slowly but steadily never
 * takes all of them, so this cannot wait until the buffer is empty. It moves at most as many bytes
 * as have left since the last time. */
static void
drop_sent(struct cn_ws_stream *stream)
{
    if (stream->out_sent < cn_ws_io_left(stream))
        return;
    cn_buf_consume(&stream->frames.out, stream->out_sent);
    stream->out_sent = 0;
}

/* Sends what is in `out`. Returns false if the connection is broken. */
static bool
send_out(struct cn_ws_stream *stream)
{
    struct cn_buf *out = &stream->frames.out;
    ssize_t n;

    while (stream->out_sent < out->len) {
        n = cn_http_conn_send(stream->conn, out->data + stream->out_sent,
                              out->len - stream->out_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return false;
        if (n < 0) {
            drop_sent(stream);
            return true;
        }
        stream->out_sent += (size_t)n;
        stream->stuck_ms = 0;
    }
    stream->out_sent = 0;
    if (out->cap > KEEP_BYTES)
        cn_buf_fini(out);
    cn_buf_reset(out);
    return true;
}

/* Too many bytes wait for clients, and this one has kept its bytes waiting for the longest time. An
 * event of the socket ends the stream. */
static void
drop_unread(struct cn_unread *unread)
{
    struct cn_ws_stream *stream = cn_container_of(unread, struct cn_ws_stream, unread);

    cn_log(CN_LOG_DEBUG, "event=stream_cut fd=%d why=max-unread-answers", stream->fd);
    shutdown(stream->conn->fd, SHUT_RDWR);
}

/* Answers that wait for an earlier step do not wait for the client, unless it reads too slowly. */
void
cn_ws_io_count_unread(struct cn_ws_stream *stream)
{
    const size_t held = cn_ws_io_is_full(stream) ? stream->held_bytes : 0;
    const size_t now = cn_ws_io_left(stream) + held, counted = stream->unread.bytes;

    if (now > counted) {
        stream->unread.drop = drop_unread;
        cn_unread_add(cn_ws_loop(stream), &stream->unread, now - counted);
    } else if (now < counted) {
        cn_unread_sub(cn_ws_loop(stream), &stream->unread, counted - now);
    }
}

/* Sends, and goes on with what waited for it: answers and messages, if the buffer was full, and the
 * end of a stream. May free the stream. */
static void
flush(struct cn_ws_stream *stream)
{
    const bool was_full = cn_ws_io_is_full(stream);
    bool is_stuck;

    if (stream->frames.failed || !send_out(stream)) {
        cn_ws_io_end(stream);
        return;
    }
    is_stuck = cn_ws_io_left(stream) > 0;
    if (is_stuck && !stream->stuck_ms)
        stream->stuck_ms = cn_loop_now_ms(cn_ws_loop(stream));
    watch(stream, stream->reads, is_stuck);
    cn_ws_io_count_unread(stream);
    if (!is_stuck && cn_ws_frames_is_closed(&stream->frames)) {
        cn_ws_io_end(stream);
        return;
    }
    /* A client that broke the protocol is not listened to any more. It must see our close, so the
     * socket is not closed at once: unread bytes would make the kernel reset the connection. */
    if (!is_stuck && stream->phase == CN_WS_CLOSING && !cn_ws_frames_wants_bytes(&stream->frames))
        cn_http_conn_shut(stream->conn);
    if (was_full || stream->is_behind || stream->phase != CN_WS_OPEN) {
        stream->is_behind = false;
        cn_ws_go_on(stream);
    }
}

static void
on_flush(struct cn_deferred *deferred)
{
    flush(cn_container_of(deferred, struct cn_ws_stream, flush));
}

void
cn_ws_io_send_soon(struct cn_ws_stream *stream)
{
    if (stream->conn && !stream->writes)
        cn_loop_defer(cn_ws_loop(stream), &stream->flush);
}

/* --- reading */

/* Takes bytes of the client, and submits the steps in them. */
static void
take(struct cn_ws_stream *stream, struct cn_str bytes)
{
    struct cn_ws_frames *frames = &stream->frames;
    const uint64_t now_ms = cn_loop_now_ms(cn_ws_loop(stream));
    const bool was_pinged = stream->pinged;
    struct cn_str rest;

    stream->heard_ms = now_ms;
    stream->pinged = false;
    if (!cn_ws_frames_wants_bytes(frames))
        return; /* after a close: dropped */
    rest = cn_ws_frames_take(frames, bytes);
    if (rest.len && cn_buf_append_str(&stream->pending, rest))
        frames->failed = true;
    if (!frames->in_message)
        stream->message_ms = 0;
    else if (!stream->message_ms)
        stream->message_ms = now_ms;
    if (frames->is_closing && stream->phase != CN_WS_CLOSING) {
        stream->phase = CN_WS_CLOSING; /* the client has closed, or wslay has refused its frame */
        cn_ws_io_wait_for_close(stream);
        atomic_store(&stream->left, true);
        cn_ws_steps_cancel(stream);
    }
    if (frames->out.len || frames->failed || cn_ws_frames_is_closed(frames))
        cn_ws_io_send_soon(stream);
    cn_ws_steps_go_on(stream);
    stream->is_full = !may_read(stream);
    if (was_pinged && !stream->n_unanswered)
        cn_ws_frames_rest(frames); /* it was only the pong of an idle client */
}

/* Takes the pending bytes, some of which may become pending again. */
static void
take_again(struct cn_ws_stream *stream)
{
    struct cn_buf bytes = stream->pending;

    cn_buf_init(&stream->pending, 0);
    take(stream, cn_buf_str(&bytes));
    cn_buf_fini(&bytes);
}

static bool
is_turn_over(const struct cn_ws_stream *stream)
{
    return cn_now_us() - cn_loop_now_us(cn_ws_loop(stream)) > TURN_US;
}

/* Takes what was read before and had no room. */
static void
take_pending(struct cn_ws_stream *stream)
{
    while (stream->pending.len && may_read(stream)) {
        take_again(stream);
        if (stream->pending.len && is_turn_over(stream)) {
            stream->is_behind = true;
            cn_ws_io_send_soon(stream);
            return;
        }
    }
}

/* Reads what has come. Returns false if the connection has ended.
 *
 * A stream that is being closed takes what it has read before, too. Otherwise that would keep it
 * from reading, and the loop would get the same event again and again until the close is over. */
static bool
read_in(struct cn_ws_stream *stream)
{
    char *room = stream->site->scratch;

    take_pending(stream);
    for (unsigned i = 0; i < READS_A_TURN && may_read(stream) && !stream->pending.len; i++) {
        ssize_t n;

        if (i > 0 && is_turn_over(stream))
            return true;
        n = cn_http_conn_recv(stream->conn, room, CN_WS_SCRATCH_BYTES);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        take(stream, (struct cn_str){room, (size_t)n});
        take_pending(stream);
        if (n < CN_WS_SCRATCH_BYTES)
            return true;
    }
    return true;
}

/* An event of the socket. May free the stream. */
static void
on_event(struct cn_ws_stream *stream, uint32_t events)
{
    const bool gone = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR), may = may_read(stream);

    if ((gone && !may) || !read_in(stream)) {
        cn_ws_io_end(stream);
        return;
    }
    if ((events & EPOLLIN) && !may)
        watch(stream, false, stream->writes);
    if (events & EPOLLOUT)
        flush(stream);
    else if (stream->frames.failed)
        cn_ws_io_send_soon(stream);
}

static void
on_conn_event(struct cn_watch *watched, uint32_t events)
{
    on_event(cn_container_of(watched, struct cn_http_conn, watch)->stream, events);
}

void
cn_ws_io_read_on(struct cn_ws_stream *stream)
{
    if (stream->is_full && may_read(stream)) { /* the rest of a message is read from now on */
        stream->is_full = false;
        if (stream->message_ms)
            stream->message_ms = cn_loop_now_ms(cn_ws_loop(stream));
    }
    take_pending(stream);
    if (!stream->reads && may_read(stream))
        watch(stream, true, stream->writes);
}

/* --- times */

static uint64_t
tick_ms(const struct cn_server_config *config)
{
    uint64_t least = config->body_timeout_ms;

    if (config->write_timeout_ms < least)
        least = config->write_timeout_ms;
    if (config->stream_ping_ms && config->stream_ping_ms < least)
        least = config->stream_ping_ms;
    return least / 2 + 1;
}

/* When the wait for the client's close is over. */
static uint64_t
close_ends_ms(const struct cn_ws_stream *stream)
{
    return cn_http_refused_until(stream->closing_ms, stream->heard_ms);
}

/* Looks whether a time is over. Returns the reason to cut the connection, or NULL. */
static const char *
look_at_times(struct cn_ws_stream *stream, uint64_t now_ms)
{
    const struct cn_server_config *config = stream->site->listener->shared->config;
    const uint64_t ping_ms = config->stream_ping_ms;
    uint64_t silent_ms;

    if (!may_read(stream)) { /* its bytes are not read while it waits for its answers */
        stream->heard_ms = now_ms;
        if (stream->message_ms) /* nor is the rest of a message that it has begun */
            stream->message_ms = now_ms;
    }
    silent_ms = now_ms - stream->heard_ms;
    if (stream->closing_ms && now_ms >= close_ends_ms(stream))
        return "close-timeout";
    if (stream->stuck_ms && now_ms - stream->stuck_ms >= config->write_timeout_ms)
        return "write-timeout";
    if (ping_ms && silent_ms >= 2 * ping_ms)
        return "ping-timeout";
    if (stream->message_ms && now_ms - stream->message_ms >= config->body_timeout_ms)
        cn_ws_close(stream, CN_WS_CLOSE_SLOW,
                    CN_STR("the message was not complete in time (body-timeout)"));
    if (ping_ms && silent_ms >= ping_ms && !stream->pinged && stream->phase != CN_WS_CLOSING) {
        stream->pinged = true;
        cn_ws_frames_ping(&stream->frames);
        cn_ws_frames_rest(&stream->frames);
        cn_ws_io_send_soon(stream);
    } else if (silent_ms > 0 && stream->phase == CN_WS_OPEN) {
        cn_ws_frames_rest(&stream->frames);
    }
    return NULL;
}

void
cn_ws_io_wait_for_close(struct cn_ws_stream *stream)
{
    stream->closing_ms = cn_loop_now_ms(cn_ws_loop(stream));
    if (stream->watch)
        cn_timer_set(cn_loop_wheel(cn_ws_loop(stream)), &stream->timer, close_ends_ms(stream));
}

static void
on_timer(struct cn_timer *timer)
{
    struct cn_ws_stream *stream = cn_container_of(timer, struct cn_ws_stream, timer);
    const uint64_t now_ms = cn_loop_now_ms(cn_ws_loop(stream));
    const char *why = look_at_times(stream, now_ms);
    uint64_t next_ms = now_ms + tick_ms(stream->site->listener->shared->config);

    if (why) {
        cn_log(CN_LOG_DEBUG, "event=stream_cut fd=%d why=%s", stream->fd, why);
        shutdown(stream->conn->fd, SHUT_RDWR); /* over TLS, more could wait to be sent */
        cn_ws_io_end(stream);
        return;
    }
    if (stream->closing_ms && close_ends_ms(stream) < next_ms)
        next_ms = close_ends_ms(stream);
    cn_timer_set(cn_loop_wheel(cn_ws_loop(stream)), timer, next_ms);
}

void
cn_ws_io_begin(struct cn_ws_stream *stream, struct cn_str extra)
{
    struct cn_http_conn *conn = stream->conn;
    struct cn_loop *loop = cn_ws_loop(stream);
    int rc;

    stream->heard_ms = cn_loop_now_ms(loop);
    stream->flush.fn = on_flush;
    stream->reads = true;
    cn_timer_init(&stream->timer, on_timer);
    cn_timer_set(cn_loop_wheel(loop), &stream->timer,
                 stream->heard_ms + tick_ms(stream->site->listener->shared->config));
    conn->watch.fn = on_conn_event;
    stream->watch = &conn->watch;
    rc = cn_loop_rewatch(loop, stream->watch, EPOLLIN | EPOLLRDHUP, NULL);
    if (stream->closing_ms)
        cn_ws_io_wait_for_close(stream);
    if (rc)
        stream->frames.failed = true;
    if (extra.len && !rc) {
        take(stream, extra);
        take_pending(stream);
    }
    cn_ws_io_send_soon(stream);
}
