/* cn_fuzz: core core/loop metrics/counters grpc */
/* tests/fuzz/grpc_connection_fuzz.c - what clients of gRPC send, on two connections of a server
 * with small methods. The input is a list of steps: bytes as they are, frames that are made of a
 * few bytes, and what the server does meanwhile (it answers, drains, and time passes). At the end
 * all must be freed, and each message reported once. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/intake/request_bytes.h"
#include "grpc/transport/transport_priv.h"
#include "metrics/counters/metrics.h"
#include "tests/fuzz/fuzz.h"

#define HELD_MAX 16
#define HELD_LIMIT (1u << 20) /* of cn_request_bytes */

static struct {
    struct cn_loop *loop;
    struct cn_grpc *grpc;
    struct cn_grpc_server *server;
    struct cn_grpc_call *held[HELD_MAX];
    unsigned n_held, n_opened, n_freed;
    uint64_t n_queued, n_sent, n_borrowed, n_released;
    int fds[2];
    uint32_t streams[2]; /* the client's last stream */
} world;

struct input {
    const uint8_t *at, *end;
};

static uint8_t
next(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* --- the methods */

static void
release(void *bytes)
{
    world.n_released++;
    cn_free(bytes);
}

static struct cn_grpc_outgoing
make_message(size_t len, bool borrowed)
{
    static const char zeros[20000];
    struct cn_grpc_outgoing out = {.body = {zeros, len < sizeof(zeros) ? len : sizeof(zeros)},
                                   .owner = &world};

    world.n_queued++;
    if (borrowed) {
        char *copy = cn_alloc(out.body.len + 1);

        out.body.ptr = copy;
        out.release = release;
        out.arg = copy;
        world.n_borrowed++;
    }
    return out;
}

static void
send_message(struct cn_grpc_call *call, size_t len, bool borrowed)
{
    struct cn_grpc_outgoing out = make_message(len, borrowed);

    cn_grpc_call_send(call, &out);
}

static void
finish(struct cn_grpc_call *call, int code, size_t len, bool borrowed)
{
    const struct cn_grpc_status status = {.code = code, .message = code ? "100 %" : NULL};
    struct cn_grpc_outgoing out;

    if (len == 0) {
        cn_grpc_call_finish(call, NULL, &status);
        return;
    }
    out = make_message(len, borrowed);
    cn_grpc_call_finish(call, &out, &status);
}

static void
on_open(struct cn_grpc_call *call)
{
    (void)call;
    world.n_opened++;
}

static void
on_free(struct cn_grpc_call *call)
{
    (void)call;
    world.n_freed++;
}

static void
on_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    cn_assert(owner == &world);
    world.n_sent++;
    if (bytes == 77 && !cn_grpc_call_is_gone(call))
        send_message(call, 5000, true);
}

static void
on_echo(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    finish(call, 0, cn_grpc_message_bytes(message) * 100, true);
}

static void
on_chat(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    send_message(call, cn_grpc_message_bytes(message), false);
    send_message(call, cn_grpc_message_bytes(message) * 300, true);
    cn_grpc_call_read(call);
}

static void
on_hold(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    (void)message;
    if (world.n_held == HELD_MAX)
        return;
    cn_grpc_call_hold(call);
    world.held[world.n_held++] = call;
}

static void
on_half_close(struct cn_grpc_call *call)
{
    finish(call, 0, 0, false);
}

static void
on_gone(struct cn_grpc_call *call)
{
    cn_assert(cn_grpc_call_is_gone(call));
    send_message(call, 10, true); /* comes too late */
}

#define METHOD(name, streams, function)                                                            \
    {                                                                                              \
        .path = name, .client_streams = streams, .needs_no_key = true, .on_open = on_open,         \
        .on_message = function, .on_half_close = on_half_close, .on_sent = on_sent,                \
        .on_gone = on_gone, .on_drain = on_half_close, .on_free = on_free                          \
    }

static const struct cn_grpc_method methods[] = {
    METHOD("/e", false, on_echo),
    METHOD("/c", true, on_chat),
    METHOD("/h", true, on_hold),
    METHOD("/u", false, on_hold),
    {.path = NULL},
};

/* --- what clients send */

static void
give(unsigned which, const void *bytes, size_t len)
{
    /* What the socket does not take is lost, which makes other bytes of what follows. */
    if (world.fds[which] >= 0 && send(world.fds[which], bytes, len, MSG_NOSIGNAL) < 0)
        return;
}

static void
give_frame(unsigned which, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
           size_t len)
{
    uint8_t bytes[9 + 1024] = {
        (uint8_t)(len >> 16),    (uint8_t)(len >> 8),    (uint8_t)len,   type, flags, 0,
        (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};

    memcpy(bytes + 9, payload, len);
    give(which, bytes, 9 + len);
}

/* An earlier stream of the client, mostly one of its last. */
static uint32_t
some_stream(unsigned which, uint8_t choice)
{
    const uint32_t back = 2u * (choice % 8u);

    return world.streams[which] > back ? world.streams[which] - back : 1;
}

static void
give_head(unsigned which, struct input *in)
{
    static const char type[] = "\x0f\x10\x10"
                               "application/grpc";
    static const char paths[] = "echuex";
    static const char *const more[] = {"",
                                       "\x00\x0cgrpc-timeout\x03"
                                       "50m",
                                       "\x00\x0dgrpc-encoding\x04gzip",
                                       "\x00\x14grpc-accept-encoding\x04gzip"};
    static const size_t more_bytes[] = {0, 18, 20, 27};
    const uint8_t what = next(in);
    uint8_t block[128];
    size_t len = 0;

    block[len++] = what & 64 ? 0x82 : 0x83; /* GET or POST */
    block[len++] = 0x86;
    memcpy(block + len, "\x04\x02/", 3);
    block[len + 3] = (uint8_t)paths[what % 6];
    len += 4;
    memcpy(block + len, "\x01\x01x", 3);
    len += 3;
    memcpy(block + len, type, sizeof(type) - 1);
    len += sizeof(type) - 1;
    memcpy(block + len, more[what / 8 % 4], more_bytes[what / 8 % 4]);
    len += more_bytes[what / 8 % 4];
    world.streams[which] = world.streams[which] ? world.streams[which] + 2 : 1;
    give_frame(which, NGHTTP2_HEADERS, what & 128 ? 5 : 4, world.streams[which], block, len);
}

/* Data: a message, or a part of one. */
static void
give_data(unsigned which, struct input *in)
{
    const uint8_t what = next(in), len = next(in);
    uint8_t bytes[1024] = {0};
    size_t at = 0;

    if (what & 8)
        bytes[at++] = 3; /* padding */
    for (unsigned i = 0; i <= (what & 3u); i++) {
        bytes[at] = what & 16 ? 1 : 0;
        bytes[at + 4] = len;
        at += 5 + len % 64u; /* from 64 on the message is not complete */
    }
    if (what & 8)
        at += 3;
    give_frame(which, NGHTTP2_DATA, (what & 128 ? 1 : 0) | (what & 8 ? 8 : 0),
               some_stream(which, what >> 4), bytes, at);
}

static void
give_small(unsigned which, struct input *in, uint8_t type)
{
    static const uint8_t sizes[] = {0, 0, 5, 4, 6, 4, 8, 8, 4};
    const uint8_t what = next(in);
    uint8_t payload[8] = {0, 0, 0, next(in), what & 128 ? 0x7f : 0, 0, 0, 8};

    if (type == NGHTTP2_SETTINGS) { /* the first window of calls */
        payload[1] = 4;
        payload[3] = 0;
        payload[2] = what & 64 ? 1 : 0;
        payload[4] = what;
        payload[5] = next(in);
    } else if (what & 32) {
        payload[1] = next(in);
    }
    give_frame(which, type, 0,
               type == NGHTTP2_RST_STREAM || (type == NGHTTP2_WINDOW_UPDATE && (what & 16))
                   ? some_stream(which, what)
                   : 0,
               payload, sizes[type]);
}

static void
give_bytes(unsigned which, struct input *in)
{
    size_t len = next(in);

    len = len < (size_t)(in->end - in->at) ? len : (size_t)(in->end - in->at);
    give(which, in->at, len);
    in->at += len;
}

static void
take_bytes(unsigned which)
{
    static uint8_t bytes[65536];

    while (world.fds[which] >= 0 && recv(world.fds[which], bytes, sizeof(bytes), 0) > 0)
        ;
}

/* --- what the server does */

static void
use_held(struct input *in)
{
    const uint8_t what = next(in);
    struct cn_grpc_call *call;

    if (world.n_held == 0)
        return;
    call = world.held[what % world.n_held];
    switch (what >> 5) {
    case 0:
    case 1:
        send_message(call, next(in) * 64u, what & 16);
        break;
    case 2:
        send_message(call, 77, true);
        break;
    case 3:
        finish(call, what & 16 ? 0 : 3, next(in) * 64u, what & 8);
        break;
    case 4:
        if (call->method->client_streams && !call->reading)
            cn_grpc_call_read(call);
        break;
    case 5:
        cn_grpc_call_add_header(call, "note", CN_STR("a"));
        break;
    default:
        finish(call, 0, 0, false);
        world.held[what % world.n_held] = world.held[world.n_held - 1];
        world.n_held--;
        cn_grpc_call_release(call);
    }
}

static void
step(struct input *in)
{
    const uint8_t what = next(in);
    const unsigned which = what >> 7;

    switch (what % 16) {
    case 0:
    case 1:
    case 2:
        give_head(which, in);
        break;
    case 3:
    case 4:
    case 5:
        give_data(which, in);
        break;
    case 6:
        give_small(which, in, NGHTTP2_RST_STREAM);
        break;
    case 7:
        give_small(which, in, NGHTTP2_WINDOW_UPDATE);
        break;
    case 8:
        give_small(which, in,
                   what & 16   ? NGHTTP2_SETTINGS
                   : what & 32 ? NGHTTP2_PING
                   : what & 64 ? NGHTTP2_GOAWAY
                               : NGHTTP2_PRIORITY);
        break;
    case 9:
        give_bytes(which, in);
        break;
    case 10:
        take_bytes(which);
        break;
    case 11:
        use_held(in);
        break;
    case 12:
        cn_clock_advance((uint64_t)next(in) * next(in));
        break;
    case 13:
        if (what == 13 && next(in) == 0)
            cn_grpc_server_drain(world.server);
        break;
    case 14:
        if (next(in) == which && world.fds[which] >= 0) {
            close(world.fds[which]);
            world.fds[which] = -1;
        }
        break;
    default:
        cn_loop_turn(world.loop, 0);
    }
    if (what & 64)
        cn_loop_turn(world.loop, 0);
}

/* --- the whole */

static void
begin(uint8_t kind)
{
    const struct cn_grpc_limits limits = {.message_bytes = 100000,
                                          .metadata_bytes = 1000,
                                          .calls = 30,
                                          .streams = 20,
                                          .memory_bytes = 1 << 20,
                                          .handshake_ms = 10000,
                                          .resets = kind & 4 ? 0 : 20,
                                          .keepalive_ms = 20000,
                                          .read_ms = 10000,
                                          .write_ms = 10000,
                                          .compress_bytes = kind & 8 ? 500 : 0};
    const int room = 4096;
    int fds[2];

    memset(&world, 0, sizeof(world));
    cn_clock_freeze();
    cn_request_bytes_set_limit(HELD_LIMIT);
    cn_assert(cn_loop_create(0, &world.loop, NULL) == 0);
    cn_loop_turn(world.loop, 0);
    world.grpc = cn_grpc_create(&limits, &world.loop, 1, NULL);
    world.server = cn_grpc_serve(world.grpc, 0, methods, NULL);
    for (unsigned i = 0; i < 2; i++) {
        cn_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
        if (kind & 2)
            setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        world.fds[i] = fds[1];
        cn_grpc_server_connect(world.server, fds[0], false, NULL);
        if (kind & 1)
            continue;
        give(i, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
        give_frame(i, NGHTTP2_SETTINGS, 0, 0, "", 0);
        if (kind & 16)
            give_frame(i, NGHTTP2_SETTINGS, 1, 0, "", 0);
    }
}

static void
end(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (world.fds[i] >= 0)
            close(world.fds[i]);
    for (unsigned i = 0; i < 3; i++)
        cn_loop_turn(world.loop, 0);
    cn_grpc_cut(world.grpc);
    cn_loop_turn(world.loop, 0);
    while (world.n_held > 0)
        cn_grpc_call_release(world.held[--world.n_held]);
    cn_loop_turn(world.loop, 0);
    cn_assert(cn_grpc_is_empty(world.grpc, 0));
    cn_assert(world.n_freed >= world.n_opened);
    cn_assert(world.n_queued == world.n_sent);
    cn_assert(world.n_borrowed == world.n_released);
    cn_assert(cn_request_bytes_fit(HELD_LIMIT));
    cn_grpc_destroy(world.grpc);
    cn_loop_destroy(world.loop);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};

    begin(next(&in));
    while (in.at < in.end)
        step(&in);
    end();
    return 0;
}
