/* grpc/transport/test_server.h - help for the tests of this room: a server with small methods on a
 * loop of its own. One thread does everything. */
#ifndef CN_GRPC_TRANSPORT_TEST_SERVER_H
#define CN_GRPC_TRANSPORT_TEST_SERVER_H

#include <sys/socket.h>

#include "core/memory/mem.h"
#include "core/test_support.h"
#include "core/time/clock.h"
#include "grpc/transport/transport_priv.h"

/* What the methods of the test server have seen. */
struct test_server_seen {
    unsigned opened, messages, half_closed, gone, freed, drained, sent;
    size_t bytes, sent_bytes, longest;
    uint64_t sum; /* over all bytes of messages */
    struct cn_grpc_call *last;
};

static struct test_server_seen seen_by_server;
static size_t large_bytes; /* how many bytes Large answers */
static char last_message[256];

/* --- the methods */

static void
test_on_open(struct cn_grpc_call *call)
{
    seen_by_server.opened++;
    seen_by_server.last = call;
}

static void
test_note(const struct cn_grpc_message *message)
{
    const size_t n = cn_grpc_message_bytes(message);

    seen_by_server.messages++;
    seen_by_server.bytes += n;
    seen_by_server.longest = n > seen_by_server.longest ? n : seen_by_server.longest;
    for (size_t i = 0; i < n; i++)
        seen_by_server.sum = seen_by_server.sum * 31 + (uint8_t)message->bytes.ptr[i];
    snprintf(last_message, sizeof(last_message), "%.*s", (int)(n < 255 ? n : 255),
             n ? message->bytes.ptr : "");
}

static void
test_on_echo(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_grpc_outgoing out = {.body = message->bytes, .owner = &seen_by_server};

    test_note(message);
    cn_grpc_call_finish(call, &out, &(struct cn_grpc_status){0});
}

/* The answer has the message as a header, too. */
static void
test_on_noted(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    cn_grpc_call_add_header(call, "note", message->bytes);
    test_on_echo(call, message);
}

static void
test_on_chat(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_grpc_outgoing out = {.body = message->bytes, .owner = &seen_by_server};

    test_note(message);
    cn_grpc_call_send(call, &out);
    cn_grpc_call_read(call);
}

static void
test_on_slow(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    (void)call;
    test_note(message); /* the test asks for the next one */
}

static void
test_on_large(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    char *bytes = cn_alloc(large_bytes + 1);
    struct cn_grpc_outgoing out = {.body = {bytes, large_bytes}, .owner = &seen_by_server};

    test_note(message);
    out.release = cn_free;
    out.arg = bytes;
    cn_grpc_call_finish(call, &out, &(struct cn_grpc_status){0});
}

/* Two messages, the second one with the status. */
static void
test_on_twice(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_grpc_outgoing out = {.body = message->bytes, .owner = &seen_by_server};

    cn_grpc_call_send(call, &out);
    test_on_large(call, message);
}

static void
test_on_refuse(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    test_note(message);
    cn_grpc_call_finish(call, NULL,
                        &(struct cn_grpc_status){.code = 3, .message = " 50 % of \xc3\xa4\n "});
}

static void
test_on_half_close(struct cn_grpc_call *call)
{
    seen_by_server.half_closed++;
    cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){0});
}

static void
test_on_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    (void)call;
    assert_ptr_equal(owner, &seen_by_server);
    seen_by_server.sent++;
    seen_by_server.sent_bytes += bytes;
}

/* The call ends when all answers have been taken, as streams of steps do. */
static void
test_on_owing_half_close(struct cn_grpc_call *call)
{
    (void)call;
    seen_by_server.half_closed++;
}

static void
test_on_owing_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    test_on_sent(call, owner, bytes);
    if (seen_by_server.half_closed > 0 && seen_by_server.sent == seen_by_server.messages)
        cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){0});
}

static void
test_on_gone(struct cn_grpc_call *call)
{
    assert_true(cn_grpc_call_is_gone(call));
    seen_by_server.gone++;
}

static void
test_on_free(struct cn_grpc_call *call)
{
    seen_by_server.freed++;
    if (seen_by_server.last == call)
        seen_by_server.last = NULL;
}

static void
test_on_drain(struct cn_grpc_call *call)
{
    seen_by_server.drained++;
    cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){.code = 14, .message = "drained"});
}

#define TEST_METHOD(name, streams, function)                                                       \
    {                                                                                              \
        .path = "/t/" name, .client_streams = streams, .needs_no_key = true,                       \
        .on_open = test_on_open, .on_message = function, .on_half_close = test_on_half_close,      \
        .on_sent = test_on_sent, .on_gone = test_on_gone, .on_free = test_on_free,                 \
        .on_drain = test_on_drain                                                                  \
    }

static const struct cn_grpc_method test_methods[] = {
    TEST_METHOD("Echo", false, test_on_echo),
    TEST_METHOD("Noted", false, test_on_noted),
    TEST_METHOD("Chat", true, test_on_chat),
    TEST_METHOD("Slow", true, test_on_slow),
    TEST_METHOD("Large", false, test_on_large),
    TEST_METHOD("Refuse", false, test_on_refuse),
    TEST_METHOD("Twice", false, test_on_twice),
    {.path = "/t/Owing",
     .client_streams = true,
     .needs_no_key = true,
     .on_open = test_on_open,
     .on_message = test_on_chat,
     .on_half_close = test_on_owing_half_close,
     .on_sent = test_on_owing_sent,
     .on_gone = test_on_gone,
     .on_free = test_on_free},
    {.path = NULL},
};

/* --- the server */

static struct cn_loop *loop;
static struct cn_grpc *grpc;
static struct cn_grpc_server *server;
static const struct cn_grpc_limits test_limits = {.message_bytes = 4 << 20,
                                                  .metadata_bytes = 16384,
                                                  .calls = 1000,
                                                  .streams = 100,
                                                  .memory_bytes = 64 << 20,
                                                  .handshake_ms = 10000,
                                                  .resets = 200,
                                                  .keepalive_ms = 60000,
                                                  .read_ms = 20000,
                                                  .write_ms = 30000};

static inline void
test_start(const struct cn_grpc_limits *limits)
{
    cn_clock_freeze();
    memset(&seen_by_server, 0, sizeof(seen_by_server));
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    cn_loop_turn(loop, 0);
    grpc = cn_grpc_create(limits ? limits : &test_limits, &loop, 1, NULL);
    server = cn_grpc_serve(grpc, 0, test_methods, NULL);
}

/* Ends the server. Nothing may be left of its connections and calls. */
static inline void
test_stop(void)
{
    cn_grpc_cut(grpc);
    cn_loop_turn(loop, 0);
    cn_loop_turn(loop, 0);
    assert_true(cn_grpc_is_empty(grpc, 0));
    assert_int_equal(cn_grpc_server_open(server), 0);
    assert_true(seen_by_server.freed >= seen_by_server.opened); /* refused ones are not opened */
    cn_grpc_destroy(grpc);
    cn_loop_destroy(loop);
}

static inline struct cn_grpc_conn *
test_conn(void)
{
    return cn_list_empty(&grpc->sites[0].conns)
               ? NULL
               : cn_container_of(grpc->sites[0].conns.next, struct cn_grpc_conn, link);
}

/* A socket whose other end the server has taken. `room`: for what it sends; 0: the usual. */
static inline int
test_connect(int room, bool is_tls)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    if (room)
        assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    cn_grpc_server_connect(server, fds[0], is_tls, NULL);
    return fds[1];
}

#endif
