/* worker/channel.c - blocks of input and one buffer of output. Owned by the worker's one thread.
 *
 * Input. The socket is read into blocks of 64 KiB, each of which usually receives many frames.
 * Nothing is copied out of a block: a decoded row points to the bytes where they were read, and
 * each waiting row holds a reference to its block. When a frame began in a block and cannot end in
 * it, its beginning moves to a new block, which is as large as the frame needs. This is also the
 * moment at which a large tensor can be aligned: the beginning is placed so that the tensor's data
 * will lie on a multiple of 16 bytes. Small blocks are kept for later, large ones are freed.
 *
 * Output. Frames collect in `out` and leave with one flush per batch. The bodies of large answers
 * stay in their replies and are sent from there with writev.
 *
 * Body memory. When the server has sent a MEMORY frame, bodies of CN_BODY_MEMORY_MIN_BYTES and more
 * go through memory that both share, and the frames say where they lie (proto/body_memory.h). The
 * replies of a batch get their memory there, so a handler's large output is written there at once.
 *
 * Waiting. A worker has nothing to do between two batches, and the server usually sends the next
 * one within microseconds. So a waiting read first polls the socket for load->busy_wait_us if that
 * has been worthwhile lately (core/time/busy_wait.h, decision 0016), and then sleeps in poll. Time
 * spent polling is not work; it is measured on a sample of the waits and subtracted from the CPU
 * time that STATS reports.
 */
#include "worker/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/process/kill_point.h"

#define BLOCK_BYTES 65536
#define SPARE_BLOCKS_MAX 4
#define ALIGNMENT 16 /* bytes; no element of a tensor needs more */
/* The largest payload. The server's own limits on a batch are below it. */
#define MAX_PAYLOAD_BYTES (2ull << 30)
/* Output memory that is kept for the next batch. */
#define OUT_KEEP_BYTES (1u << 20)
/* With less room than this a new block is taken, so that reads stay large. */
#define ROOM_MIN_BYTES 4096
/* Asking for the CPU time is a system call, and a busy worker waits once per batch, so one wait is
 * measured for this number of waits. It is a prime, because groups of clients take turns and the
 * sample must not always meet the same group. */
#define WAITS_A_MEASUREMENT 17

void
cn_channel_init(struct cn_channel *channel, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    *channel = (struct cn_channel){.fd = fd, .passed_fd = -1, .trim_ms = CN_NEVER};
    cn_list_init(&channel->spare);
    cn_buf_init(&channel->out, 0);
    cn_borrowed_output_init(&channel->borrowed);
    if (flags >= 0 && (flags & O_NONBLOCK))
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static void
block_free(struct cn_block *block)
{
    cn_arena_fini(&block->arena);
    cn_free(block);
}

void
cn_channel_fini(struct cn_channel *channel)
{
    struct cn_list *link;

    if (channel->current)
        cn_block_unref(channel, channel->current);
    while ((link = cn_list_pop_front(&channel->spare)) != NULL)
        block_free(cn_container_of(link, struct cn_block, link));
    cn_buf_fini(&channel->out);
    cn_borrowed_output_fini(&channel->borrowed);
    cn_body_memory_free(channel->body_memory);
    if (channel->passed_fd >= 0)
        close(channel->passed_fd);
    close(channel->fd);
}

void
cn_block_ref(struct cn_block *block)
{
    block->refs++;
}

void
cn_block_unref(struct cn_channel *channel, struct cn_block *block)
{
    cn_assert(block->refs > 0);
    if (--block->refs)
        return;
    if (block->cap > BLOCK_BYTES || channel->n_spare >= SPARE_BLOCKS_MAX) {
        block_free(block);
        return;
    }
    cn_arena_clear(&block->arena);
    cn_list_push_front(&channel->spare, &block->link);
    channel->n_spare++;
}

static struct cn_block *
block_take(struct cn_channel *channel, size_t bytes)
{
    struct cn_block *block;

    if (bytes <= BLOCK_BYTES && channel->n_spare) {
        block = cn_container_of(cn_list_pop_front(&channel->spare), struct cn_block, link);
        channel->n_spare--;
    } else {
        if (bytes < BLOCK_BYTES)
            bytes = BLOCK_BYTES;
        block = cn_try_alloc(sizeof(*block) + bytes);
        if (!block)
            return NULL;
        block->cap = bytes;
        cn_list_init(&block->link);
        cn_arena_init(&block->arena);
    }
    block->refs = 1;
    block->filled = block->parsed = 0;
    return block;
}

/* Sets *out to the size of the frame that begins at the first unparsed byte; 0 when its header has
 * not arrived. Returns CN_E_PROTOCOL when it is too large. */
static int
frame_need(const struct cn_block *block, size_t *out, struct cn_error *err)
{
    const unsigned char *at = (const unsigned char *)block->bytes + block->parsed;
    uint64_t payload;

    *out = 0;
    if (block->filled - block->parsed < CN_FRAME_HEADER_BYTES)
        return 0;
    payload = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    if (payload > MAX_PAYLOAD_BYTES)
        return cn_fail(err, CN_E_PROTOCOL, "frame of %llu bytes exceeds the limit of %llu bytes",
                       (unsigned long long)payload, MAX_PAYLOAD_BYTES);
    *out = CN_FRAME_HEADER_BYTES + (size_t)payload;
    return 0;
}

/* Returns the offset in the block at which a frame that begins with these bytes should be placed,
 * so that its first large tensor is aligned for its type and a handler can use it without a copy.
 */
static size_t
gap_for(const struct cn_block *block, const char *begun, size_t len)
{
    const size_t at = cn_frame_find_large(begun, len);

    return at ? -((uintptr_t)block->bytes + at) % ALIGNMENT : 0;
}

/* Makes room for the next read. Three cases: the current block is used up and nobody refers to it,
 * so it is used from its start again; it has room for the rest of the frame that began in it, so it
 * stays; or that frame moves to a new block that is large enough. */
static int
make_room(struct cn_channel *channel, struct cn_error *err)
{
    struct cn_block *block = channel->current, *fresh;
    size_t rest, need = 0;
    int rc;

    if (block && block->parsed == block->filled && block->refs == 1) {
        if (block->cap <= BLOCK_BYTES) { /* no row refers to it: it can be used again */
            block->filled = block->parsed = 0;
            cn_arena_clear(&block->arena);
        } else {
            channel->current = NULL;
            cn_block_unref(channel, block);
            block = NULL;
        }
    }
    if (block && (rc = frame_need(block, &need, err)) != 0)
        return rc;
    /* All complete frames have been taken, so what is left is the beginning of one. */
    if (block && need <= block->cap - block->parsed &&
        (need > 0 || block->cap - block->filled >= ROOM_MIN_BYTES))
        return 0;
    rest = block ? block->filled - block->parsed : 0;
    fresh = block_take(channel,
                       (need > rest + ROOM_MIN_BYTES ? need : rest + ROOM_MIN_BYTES) + ALIGNMENT);
    if (!fresh)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a frame of %zu bytes", need);
    if (rest) {
        fresh->parsed = gap_for(fresh, block->bytes + block->parsed, rest);
        memcpy(fresh->bytes + fresh->parsed, block->bytes + block->parsed, rest);
    }
    fresh->filled = fresh->parsed + rest;
    if (block)
        cn_block_unref(channel, block);
    channel->current = fresh;
    return 0;
}

/* Waits by poll, not in recv: a thread asleep in recv on a local socket is also woken each time the
 * other side reads what it was sent (the socket can be written to again), to find nothing. Between
 * a busy server and its worker that was one needless switch a batch on either side. */
static void
wait_readable(const struct cn_channel *channel, int timeout_ms)
{
    struct pollfd watched[] = {{.fd = channel->fd, .events = POLLIN},
                               {.fd = channel->event_fd, .events = POLLIN}};

    /* The result does not matter, because the recv() that follows reports any error. */
    poll(watched, channel->event_fd ? 2 : 1, timeout_ms);
}

/* Keeps the descriptor that came with a message, if there is one. */
static void
take_fd(struct cn_channel *channel, struct msghdr *message)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);

    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
        return;
    if (channel->passed_fd >= 0)
        close(channel->passed_fd);
    memcpy(&channel->passed_fd, CMSG_DATA(head), sizeof(channel->passed_fd));
}

static ssize_t
receive(struct cn_channel *channel, char *at, size_t room)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec bytes = {at, room};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n;

    do
        n = recvmsg(channel->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n > 0 && message.msg_controllen)
        take_fd(channel, &message);
    return n;
}

int
cn_channel_share(struct cn_channel *channel, const struct cn_memory_order *order,
                 struct cn_error *err)
{
    const int fd = channel->passed_fd;

    if (fd < 0 || channel->body_memory)
        return cn_fail(err, CN_E_PROTOCOL, "a MEMORY frame %s",
                       fd < 0 ? "came without a descriptor" : "came for the second time");
    channel->passed_fd = -1;
    return cn_body_memory_open(fd, order->half_bytes, &channel->body_memory, err);
}

/* Like receive, but waits for the first byte: polling for a moment if that pays, then asleep. */
static ssize_t
wait_and_receive(struct cn_channel *channel, char *at, size_t room, int timeout_ms)
{
    const bool measured = channel->n_waits++ % WAITS_A_MEASUREMENT == 0;
    const uint64_t begun_us = measured ? cn_cpu_us() : 0;
    ssize_t n = -1;

    cn_busy_wait_begin(&channel->busy_wait);
    while (n < 0 && cn_busy_wait_again(&channel->busy_wait))
        n = receive(channel, at, room);
    if (n < 0) {
        wait_readable(channel, timeout_ms);
        n = receive(channel, at, room);
    }
    cn_busy_wait_end(&channel->busy_wait);
    if (measured)
        channel->wait_us = cn_cpu_us() - begun_us;
    channel->waited_us += channel->wait_us;
    return n;
}

int
cn_channel_read(struct cn_channel *channel, int timeout_ms, struct cn_error *err)
{
    struct cn_block *block;
    size_t room;
    ssize_t n;
    int rc;

    channel->more = channel->waited = false;
    if (channel->eof)
        return 0;
    if ((rc = make_room(channel, err)) != 0)
        return rc;
    block = channel->current;
    room = block->cap - block->filled;
    n = receive(channel, block->bytes + block->filled, room);
    if (n < 0 && errno == EAGAIN && timeout_ms > 0) {
        channel->waited = true;
        n = wait_and_receive(channel, block->bytes + block->filled, room, timeout_ms);
    }
    if (n > 0) {
        block->filled += (size_t)n;
        /* A short read means that the socket is empty, which saves the call that would find out. */
        channel->more = (size_t)n == room;
    } else if (n == 0 || errno == ECONNRESET) {
        channel->eof = true;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read from the server");
    }
    return 0;
}

int
cn_channel_next(struct cn_channel *channel, struct cn_frame *out, struct cn_block **block,
                struct cn_error *err)
{
    struct cn_block *current = channel->current;
    long used;

    if (!current)
        return 0;
    used = cn_frame_next(current->bytes + current->parsed, current->filled - current->parsed,
                         MAX_PAYLOAD_BYTES, out, err);
    if (used <= 0)
        return (int)used;
    out->body_memory = channel->body_memory;
    current->parsed += (size_t)used;
    *block = current;
    return 1;
}

/* Sends the next `max` bytes of the output; *sent is how far it has come. */
static void
send_some(struct cn_channel *channel, size_t *sent, uint64_t max)
{
    while (max > 0 && !channel->eof) {
        ssize_t n = cn_borrowed_output_send(&channel->borrowed, &channel->out, sent,
                                            max < SIZE_MAX ? (size_t)max : SIZE_MAX, channel->fd,
                                            MSG_NOSIGNAL);

        if (n > 0)
            max -= (uint64_t)n;
        else if (errno != EINTR)
            channel->eof = true; /* EPIPE, ECONNRESET: nobody is left to tell */
    }
}

int
cn_channel_flush(struct cn_channel *channel, struct cn_error *err)
{
    struct cn_buf *out = &channel->out;
    const uint64_t all = out->len + channel->borrowed.bytes;
    size_t sent = 0;

    if (out->failed)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for answers of over %zu bytes",
                       out->len);
    if (out->len == 0)
        return 0;
    if (cn_kill_armed == CN_KILL_ANSWERS_HALF_WRITTEN && channel->out_answers && cn_kill_due()) {
        send_some(channel, &sent, all / 2);
        cn_kill_now();
    }
    send_some(channel, &sent, all);
    channel->out_answers = false;
    cn_buf_reset(out);
    cn_borrowed_output_fini(&channel->borrowed);
    if (out->cap > OUT_KEEP_BYTES)
        cn_buf_fini(out);
    return 0;
}
