/* frontend/http/transport/test_http.h - help for the tests of this room: a listener with small
 * endpoints on a loop of its own, and clients on the loopback interface. One thread does
 * everything. */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_TEST_HTTP_H
#define CN_FRONTEND_HTTP_TRANSPORT_TEST_HTTP_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/memory/mem.h"
#include "core/test_support.h"
#include "core/time/clock.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/http_request.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/job.h"

#define TEST_HEADER_MS 10000
#define TEST_BODY_MS 20000
#define TEST_WRITE_MS 30000
#define TEST_KEEPALIVE_MS 60000

static struct cn_loop *loop;
static struct cn_http_listener *listener;
static struct sockaddr_in test_address;
static size_t large_bytes;                   /* of the answer of /large */
static struct cn_http_request *held_request; /* the last one to /hold that is not answered */
static unsigned n_held, n_gone;
static size_t n_taken;

/* --- the endpoints */

static void
test_answer_echo(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 200, "text/plain", cn_http_request_body_str(request));
}

static void
test_answer_nothing(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 204, NULL, CN_STR(""));
}

/* Bytes that differ at each place. */
static inline char
test_byte(size_t at)
{
    return (char)('a' + at * 7 % 23 + at / 4096 % 3);
}

static void
test_answer_large(struct cn_http_request *request)
{
    struct cn_buf body;
    char *room;

    cn_buf_init(&body, 0);
    room = cn_buf_reserve(&body, large_bytes + 1);
    for (size_t i = 0; i < large_bytes; i++)
        room[i] = test_byte(i);
    body.len = large_bytes;
    cn_http_answer_taken(request, "text/plain", &body);
}

static void
test_on_gone(struct cn_http_request *request)
{
    assert_non_null(request->call);
    n_gone++;
}

static void
test_on_taken(struct cn_http_request *request, size_t bytes)
{
    (void)request;
    n_taken += bytes;
}

/* Is answered by the test. */
static void
test_hold(struct cn_http_request *request)
{
    n_held++;
    held_request = request;
    request->on_taken = test_on_taken;
    cn_http_request_hold(request, &n_held, test_on_gone);
}

/* Answers the request that is held. */
static inline void
test_let_go(struct cn_str body)
{
    cn_http_answer_bytes(held_request, 200, "text/plain", body);
    cn_http_request_release(held_request);
}

/* Gives a piece of the answer of the request that is held; `n` bytes of test_byte(). */
static inline void
test_piece(size_t n, bool is_final)
{
    char *bytes = cn_alloc(n + 1);

    for (size_t i = 0; i < n; i++)
        bytes[i] = test_byte(i);
    cn_http_answer_piece(held_request, cn_answer_box_text(CN_STR("text/plain"),
                                                          (struct cn_str){bytes, n}, is_final));
    cn_free(bytes);
    if (is_final)
        cn_http_request_release(held_request);
}

static const struct cn_route test_routes[] = {
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/echo", .handle = test_answer_echo},
    {.methods = CN_HTTP_GET, .pattern = "/nothing", .handle = test_answer_nothing},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/large", .handle = test_answer_large},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/hold", .handle = test_hold},
    {.handle = NULL},
};

/* --- the server */

static struct cn_server_config test_config;
static struct cn_http_shared test_shared;
static const struct cn_http_api test_api = {
    .routes = test_routes, .counted = true, .capacity = 1000, .kind = CN_ADDRESS_INFERENCE};

static inline void
test_start(bool is_tls)
{
    socklen_t len = sizeof(test_address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    cn_clock_freeze();
    n_held = n_gone = 0;
    n_taken = 0;
    held_request = NULL;
    test_config.header_timeout_ms = TEST_HEADER_MS;
    test_config.body_timeout_ms = TEST_BODY_MS;
    test_config.write_timeout_ms = TEST_WRITE_MS;
    test_config.keepalive_timeout_ms = TEST_KEEPALIVE_MS;
    test_config.max_connections = 100;
    test_config.max_request_bytes = 4 << 20;
    test_config.connection_memory_bytes = 32768;
    test_shared = (struct cn_http_shared){
        .config = &test_config, .loops = &loop, .n_loops = 1, .answer_room = CN_HTTP_ANSWER_ROOM};
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    cn_loop_turn(loop, 0);
    test_address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)&test_address, len), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&test_address, &len), 0);
    assert_int_equal(
        cn_http_listener_create(&test_shared, &test_api, loop, fd, is_tls, &listener, NULL), 0);
}

static inline void
test_turns(void)
{
    for (unsigned i = 0; i < 6; i++)
        cn_loop_turn(loop, 0);
}

/* Lets this much time pass. */
static inline void
test_wait(uint64_t ms)
{
    cn_clock_advance(ms);
    test_turns();
}

/* Ends the server. Nothing may be left of its connections and requests. */
static inline void
test_stop(void)
{
    cn_http_listener_cut(listener);
    test_turns();
    assert_true(cn_http_listener_is_empty(listener));
    assert_int_equal(cn_metrics_get(cn_loop_metrics(loop), CN_M_HTTP_CONNECTIONS), 0);
    cn_http_listener_destroy(listener);
    cn_loop_destroy(loop);
}

/* --- clients */

struct test_answers {
    char *bytes;
    size_t len;
    bool ended, lost; /* the server has closed in order, or has reset the connection */
};

/* `room`: of the client's receive buffer; 0: the usual. */
static inline int
test_connect(int room)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (room)
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    assert_int_equal(connect(fd, (struct sockaddr *)&test_address, sizeof(test_address)), 0);
    test_turns();
    return fd;
}

static inline void
test_send(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN)
            return;
        bytes += n < 0 ? 0 : n;
        len -= n < 0 ? 0 : (size_t)n;
        if (n < 0)
            cn_loop_turn(loop, 0);
    }
    test_turns();
}

static inline void
test_send_text(int fd, const char *text)
{
    test_send(fd, text, strlen(text));
}

/* Reads what has come, at most `most` bytes, behind what was read before. */
static inline void
test_read_some(int fd, struct test_answers *out, size_t most)
{
    ssize_t n;

    if (!out->bytes)
        out->bytes = cn_alloc(8 << 20);
    n = recv(fd, out->bytes + out->len, most, MSG_DONTWAIT);
    out->len += n > 0 ? (size_t)n : 0;
    out->bytes[out->len] = '\0';
    out->ended |= n == 0 && most > 0;
    out->lost |= n < 0 && errno != EAGAIN;
}

/* Reads until nothing moves any more. */
static inline void
test_read(int fd, struct test_answers *out)
{
    for (unsigned quiet = 0; quiet < 4 && !out->ended && !out->lost; quiet++) {
        const size_t len = out->len;

        test_read_some(fd, out, 65536);
        if (out->len > len)
            quiet = 0;
        test_turns();
    }
}

static inline void
test_forget(struct test_answers *answers)
{
    cn_free(answers->bytes);
    *answers = (struct test_answers){.len = 0};
}

static inline unsigned
test_count(const struct test_answers *answers, const char *word)
{
    unsigned n = 0;

    for (const char *at = answers->bytes; at && (at = strstr(at, word)); at++)
        n++;
    return n;
}

static inline void
test_reset(int fd)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
    test_turns();
}

#endif
