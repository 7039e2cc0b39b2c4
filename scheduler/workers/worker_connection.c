/* scheduler/workers/worker_connection.c - the socket to one worker, on the model queue's loop.
 *
 * Reading: read_frames() reads what the socket has, up to READ_TURN_BYTES in a turn, and parse()
 * hands each complete frame to worker_frames.c. A large frame is read into memory of exactly
 * its size, so that the holder of its body can take the memory over instead of copying it.
 *
 * Writing: all parts of the scheduler append frames to `out` during a turn, and one flush at its
 * end writes them. Large parts of rows are not copied into `out`: `borrowed` remembers where in the
 * stream they belong, and they are sent from the jobs' memory.
 *
 * A link is lost once, for the first reason that lose() gets, and its owner learns of it at the end
 * of the turn. A failed write alone does not lose it: the worker may have answered before it died,
 * so its socket is read to the end first (DEAF in worker_link_phases.def).
 *
 * The owner's callbacks may destroy the link. Those that come from the middle of reading are
 * guarded by `depth`: the memory is freed when the last call on the stack returns. All others are
 * the last thing that a function does.
 */
#include "scheduler/workers/worker_link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/arena.h"
#include "core/memory/mem.h"
#include "proto/wire.h"
#include "scheduler/workers/worker_link_priv.h"

#define LINK_MAGIC 0x4b4e494cu /* "LINK" */
#define READ_BYTES (64u * 1024)
#define READ_TURN_BYTES (4u * 1024 * 1024) /* then other descriptors get their turn */
#define KEEP_BYTES (1024u * 1024)          /* a buffer that grew larger is freed when it is empty */
#define LARGE_BYTES READ_BYTES /* frames of this size and more are read into memory of their own */

/* Are its frames still handed out? */
static bool
reads(const struct cn_worker_link *link)
{
    return link->phase == CN_LINK_OPEN || link->phase == CN_LINK_DEAF;
}

static void lose(struct cn_worker_link *link, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Loses the link. The first reason counts, and the owner learns of it at the end of the turn. */
static void
lose(struct cn_worker_link *link, const char *fmt, ...)
{
    va_list args;

    if (!reads(link))
        return;
    cn_worker_link_to(link, CN_LINK_LOST);
    va_start(args, fmt);
    vsnprintf(link->why, sizeof(link->why), fmt, args);
    va_end(args);
    cn_loop_unwatch(link->loop, &link->watch);
    cn_loop_defer(link->loop, &link->turn_end);
}

/* Hands out each complete frame that was read. */
static void
parse(struct cn_worker_link *link)
{
    struct cn_error err;
    struct cn_frame frame;
    size_t at = 0;

    while (at < link->in.len && reads(link)) {
        long size = cn_frame_next(link->in.data + at, link->in.len - at, link->max_frame_bytes,
                                  &frame, &err);

        if (size == 0)
            break;
        frame.body_memory = link->body_memory;
        if (size < 0 || cn_worker_link_give_frame(link, &frame, &err) < 0) {
            lose(link, "worker %u broke the protocol: %s", link->index, err.message);
            break;
        }
        at += (size_t)size;
        if (!link->in.data) { /* an answer has taken over the buffer */
            at = 0;
            break;
        }
    }
    if (link->phase != CN_LINK_CLOSED)
        cn_buf_consume(&link->in, at);
}

char *
cn_worker_link_take_read(struct cn_worker_link *link, struct cn_str body)
{
    char *copied = link->copied_body;

    if (copied && body.ptr == copied) {
        link->copied_body = NULL;
        return copied;
    }
    if (body.len < LARGE_BYTES || body.ptr + body.len != link->in.data + link->in.len)
        return NULL;
    return cn_buf_take(&link->in, NULL);
}

/* How many bytes to make room for. A large frame gets room for all of it and nothing behind it, so
 * that the holder of its body can take over the memory. */
static size_t
bytes_wanted(const struct cn_worker_link *link)
{
    struct cn_reader reader;
    uint64_t frame;

    if (link->in.len < CN_FRAME_HEADER_BYTES)
        return READ_BYTES;
    cn_reader_init(&reader, link->in.data, link->in.len);
    frame = CN_FRAME_HEADER_BYTES + (uint64_t)cn_read_u32(&reader);
    if (frame < LARGE_BYTES || frame <= link->in.len)
        return READ_BYTES;
    return (size_t)(frame -
                    link->in.len); /* at most max_frame_bytes: parse() has looked at the header */
}

/* Reads until the socket is empty, the worker has closed its end, or `budget` bytes came. */
static void
read_frames(struct cn_worker_link *link, size_t budget)
{
    size_t got = 0;

    while (got < budget && reads(link)) {
        size_t room = bytes_wanted(link);
        char *to = cn_buf_reserve(&link->in, room);
        ssize_t n;

        if (!to) {
            lose(link, "not enough memory for a frame of %zu bytes from worker %u", room,
                 link->index);
            return;
        }
        n = recv(link->fd, to, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            if (n == 0)
                lose(link, "worker %u closed its end of the socket", link->index);
            else
                lose(link, "reading from worker %u: %s", link->index, strerror(errno));
            return;
        }
        link->in.len += (size_t)n;
        got += (size_t)n;
        parse(link);
        if ((size_t)n < room)
            /* The socket is empty now, so the recv() that would say so is saved; epoll reports
             * further bytes. */
            break;
    }
    if (link->phase != CN_LINK_CLOSED && link->in.len == 0 && link->in.cap > KEEP_BYTES)
        cn_buf_fini(&link->in);
}

static void
watch_for_space(struct cn_worker_link *link, bool wanted)
{
    struct cn_error err;

    if (link->waits_for_space == wanted)
        return;
    link->waits_for_space = wanted;
    if (cn_loop_rewatch(link->loop, &link->watch, EPOLLIN | (wanted ? (uint32_t)EPOLLOUT : 0),
                        &err) < 0)
        lose(link, "worker %u: %s", link->index, err.message);
}

/* The worker no longer reads. But it may have sent answers before, so its socket is read to the end
 * when the turn is over. */
static void
write_failed(struct cn_worker_link *link)
{
    cn_worker_link_to(link, CN_LINK_DEAF);
    cn_loop_defer(link->loop, &link->turn_end);
}

void
cn_worker_link_flush(struct cn_worker_link *link)
{
    struct cn_buf *out = &link->out;

    if (link->phase != CN_LINK_OPEN)
        return;
    if (out->failed) {
        lose(link, "not enough memory for frames to worker %u", link->index);
        return;
    }
    while (link->out_sent < out->len || cn_borrowed_output_pending(&link->borrowed)) {
        ssize_t n = cn_borrowed_output_send(&link->borrowed, out, &link->out_sent, SIZE_MAX,
                                            link->fd, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0 || errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            write_failed(link);
            return;
        }
        if (link->out_sent >
            out->len / 2) { /* the rest is the smaller part, so moving it is cheap */
            cn_borrowed_output_consume(&link->borrowed, link->out_sent);
            cn_buf_consume(out, link->out_sent);
            link->out_sent = 0;
        }
        watch_for_space(link, true);
        return;
    }
    cn_borrowed_output_consume(&link->borrowed, link->out_sent);
    link->out_sent = 0;
    if (out->cap > KEEP_BYTES)
        cn_buf_fini(out);
    else
        cn_buf_reset(out);
    watch_for_space(link, false);
}

void
cn_worker_link_flush_later(struct cn_worker_link *link)
{
    cn_loop_defer(link->loop, &link->turn_end);
}

bool
cn_worker_link_usable(const struct cn_worker_link *link)
{
    return link->phase == CN_LINK_OPEN && link->credit_phase != CN_CREDIT_OVERDUE;
}

void
cn_worker_link_forget_borrowed(struct cn_worker_link *link)
{
    if (link->phase == CN_LINK_OPEN && cn_borrowed_output_pending(&link->borrowed))
        cn_worker_link_to(link, CN_LINK_DEAF);
    cn_borrowed_output_fini(&link->borrowed);
}

static void
free_link(struct cn_worker_link *link)
{
    cn_borrowed_output_fini(&link->borrowed);
    cn_body_memory_free(link->body_memory);
    cn_buf_fini(&link->in);
    cn_buf_fini(&link->out);
    link->magic = 0;
    cn_free(link);
}

static void
leave(struct cn_worker_link *link)
{
    if (--link->depth == 0 && link->phase == CN_LINK_CLOSED)
        free_link(link);
}

static void
on_events(struct cn_watch *watch, uint32_t events)
{
    struct cn_worker_link *link = cn_container_of(watch, struct cn_worker_link, watch);

    link->depth++;
    if (events & ~(uint32_t)EPOLLOUT)
        read_frames(link, READ_TURN_BYTES);
    if ((events & EPOLLOUT) && link->phase != CN_LINK_CLOSED)
        cn_worker_link_flush(link);
    leave(link);
}

/* How many bytes lie in the socket now. */
static size_t
bytes_there(const struct cn_worker_link *link)
{
    int bytes = 0;

    return ioctl(link->fd, FIONREAD, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

static void
at_turn_end(struct cn_deferred *deferred)
{
    struct cn_worker_link *link = cn_container_of(deferred, struct cn_worker_link, turn_end);

    link->depth++;
    cn_worker_link_flush(link);
    if (link->phase == CN_LINK_DEAF) {
        /* A worker that lives may go on sending for ever, so only what is there by now is read. One
         * byte more finds the end of the socket. */
        read_frames(link, bytes_there(link) + 1);
        lose(link, "worker %u no longer reads", link->index);
    }
    if (link->phase == CN_LINK_LOST) {
        cn_worker_link_to(link, CN_LINK_TOLD);
        link->ops->on_lost(link->owner, link->why);
    }
    leave(link);
}

int
cn_worker_link_create(struct cn_loop *loop, int fd, uint32_t index, uint64_t max_frame_bytes,
                      const struct cn_worker_link_ops *ops, void *owner,
                      struct cn_worker_link **out, struct cn_error *err)
{
    struct cn_worker_link *link = cn_alloc(sizeof(*link));
    int rc;

    link->magic = LINK_MAGIC;
    link->loop = loop;
    link->fd = fd;
    link->index = index;
    link->max_frame_bytes = max_frame_bytes;
    link->ops = ops;
    link->owner = owner;
    link->watch.fn = on_events;
    link->turn_end.fn = at_turn_end;
    cn_list_init(&link->turn_end.link);
    cn_buf_init(&link->in, max_frame_bytes + CN_FRAME_HEADER_BYTES + READ_BYTES);
    cn_buf_init(&link->out, 0); /* bounded by credit: rows in flight, closes under way */
    cn_borrowed_output_init(&link->borrowed);
    cn_list_init(&link->attached);
    cn_list_init(&link->in_flight);
    cn_list_init(&link->live);
    cn_list_init(&link->ready);
    cn_list_init(&link->to_close);
    cn_list_init(&link->closing);
    cn_list_init(&link->queries);
    cn_timer_init(&link->overdue, NULL);
    rc = cn_loop_watch(loop, &link->watch, fd, EPOLLIN, err);
    if (rc < 0) {
        close(fd);
        free_link(link);
        return rc;
    }
    *out = link;
    return 0;
}

void
cn_worker_link_destroy(struct cn_worker_link *link)
{
    if (!link)
        return;
    cn_assert(link->magic == LINK_MAGIC && !link->queue);
    cn_assert_on_loop(link->loop);
    cn_worker_link_to(link, CN_LINK_CLOSED);
    cn_loop_unwatch(link->loop, &link->watch);
    cn_list_remove(&link->turn_end.link);
    cn_timer_cancel(&link->overdue);
    close(link->fd);
    if (link->depth == 0)
        free_link(link);
}

void
cn_worker_link_send_load(struct cn_worker_link *link, const struct cn_load *load)
{
    cn_frame_put_load(&link->out, load);
    cn_worker_link_flush_later(link);
}

bool
cn_worker_link_send_fds(struct cn_worker_link *link, const struct cn_buf *frame, const int *fds,
                        unsigned n)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(CN_LINK_FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec text = {frame->data, frame->len};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    cn_assert(n <= CN_LINK_FDS_MAX && !cn_worker_link_is_sending(link));
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(head), fds, n * sizeof(int));
    return !frame->failed &&
           sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)frame->len;
}

/* At once: nothing else is under way to a zygote. */
bool
cn_worker_link_send_fork(struct cn_worker_link *link, struct cn_str label, const int fds[2])
{
    struct cn_buf frame;
    bool sent;

    if (!cn_worker_link_usable(link) || cn_worker_link_is_sending(link))
        return false;
    cn_buf_init(&frame, 0);
    cn_frame_put_fork(&frame, label);
    sent = cn_worker_link_send_fds(link, &frame, fds, 2);
    cn_buf_fini(&frame);
    if (sent)
        link->n_forks++;
    else
        lose(link, "worker %u takes no FORK: %s", link->index, strerror(errno));
    return sent;
}

void
cn_worker_link_send_stop(struct cn_worker_link *link)
{
    cn_frame_put_stop(&link->out);
    cn_worker_link_flush_later(link);
}
