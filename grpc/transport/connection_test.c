/* grpc/transport/connection_test.c - tests a connection: what a client can make it keep, its
 * windows, and its time limits. */
#include "grpc/transport/test_client.h"

/* --- clients that send frames by hand */

static void
send_raw(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN)
            return; /* the server has closed */
        if (n < 0)
            cn_loop_turn(loop, 0);
        else {
            at += n;
            len -= (size_t)n;
        }
    }
}

static size_t
put_frame(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
          size_t len)
{
    const uint8_t head[9] = {(uint8_t)(len >> 16),
                             (uint8_t)(len >> 8),
                             (uint8_t)len,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};

    memcpy(out, head, 9);
    if (len)
        memcpy(out + 9, payload, len);
    return 9 + len;
}

static void
send_frame(int fd, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, size_t len)
{
    uint8_t bytes[9 + 256];

    assert_true(len <= 256);
    send_raw(fd, bytes, put_frame(bytes, type, flags, stream, payload, len));
}

static int
connect_raw(int room)
{
    int fd = test_connect(room, false);

    send_raw(fd, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    send_frame(fd, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    cn_loop_turn(loop, 0);
    assert_non_null(test_conn());
    return fd;
}

/* GET http / of the static table: refused with 405, or because too many are open. */
static const uint8_t get[] = {0x82, 0x86, 0x84, 0x01, 0x01, 'x'};

/* A client that makes the server answer, and does not read, must not fill its memory. */
static void
unread_frames_are_bounded(void **state)
{
    size_t most = 0, n;
    int fd;

    (void)state;
    test_start(NULL);
    fd = connect_raw(4096);
    for (uint32_t i = 0; i < 300000 && test_conn(); i++) {
        send_frame(fd, NGHTTP2_HEADERS, 5, 2 * i + 1, get, sizeof(get));
        if (i % 64)
            continue;
        cn_loop_turn(loop, 0);
        n = test_conn() ? nghttp2_session_get_outbound_queue_size(test_conn()->h2) : 0;
        most = n > most ? n : most;
    }
    assert_null(test_conn());
    assert_in_range(most, 1, 5000);
    close(fd);
    test_stop();
}

/* All in one read, so that there is no turn between the frames. */
static void
unread_frames_of_one_read_are_bounded(void **state)
{
    static uint8_t bytes[200000];
    size_t len = 0;
    int fd;

    (void)state;
    test_start(NULL);
    fd = connect_raw(4096);
    for (uint32_t i = 0; i < 12000; i++)
        len += put_frame(bytes + len, NGHTTP2_HEADERS, 5, 2 * i + 1, get, sizeof(get));
    send_raw(fd, bytes, len);
    cn_loop_turn(loop, 0);
    assert_null(test_conn());
    close(fd);
    test_stop();
}

/* The same client, when it reads: it is served. */
static void
read_frames_are_not_bounded(void **state)
{
    static uint8_t bytes[65536];
    int fd;

    (void)state;
    test_start(NULL);
    fd = connect_raw(0);
    for (uint32_t i = 0; i < 20000; i++) {
        send_frame(fd, NGHTTP2_HEADERS, 5, 2 * i + 1, get, sizeof(get));
        if (i % 64 == 0)
            cn_loop_turn(loop, 0);
        while (recv(fd, bytes, sizeof(bytes), 0) > 0)
            ;
    }
    assert_non_null(test_conn());
    close(fd);
    cn_loop_turn(loop, 0);
    assert_null(test_conn());
    test_stop();
}

/* The reason for which a client goes is kept until it is complete, so a long one is not taken. */
static void
a_long_goaway_ends_the_connection(void **state)
{
    static const uint32_t lengths[] = {8 + 4000, 8 + 5000, 200000};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const uint8_t head[9 + 8] = {(uint8_t)(lengths[i] >> 16), (uint8_t)(lengths[i] >> 8),
                                     (uint8_t)lengths[i], NGHTTP2_GOAWAY};
        int fd;

        test_start(NULL);
        fd = connect_raw(0);
        send_frame(fd, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
        send_raw(fd, head, sizeof(head));
        cn_loop_turn(loop, 0);
        assert_int_equal(test_conn() == NULL, i > 0);
        close(fd);
        test_stop();
    }
}

static void
pings_are_answered_and_bounded(void **state)
{
    uint8_t bytes[17];
    int fd;

    (void)state;
    test_start(NULL);
    fd = connect_raw(4096);
    put_frame(bytes, NGHTTP2_PING, 0, 0, "12345678", 8);
    for (unsigned i = 0; i < 100000 && test_conn(); i++) {
        send_raw(fd, bytes, 17);
        if (i % 256 == 0)
            cn_loop_turn(loop, 0);
    }
    cn_loop_turn(loop, 0);
    assert_null(test_conn());
    close(fd);
    test_stop();
}

/* A client can make the server itself reset a call, with a frame that is wrong. That costs as much
 * as a call that is cancelled. */
static void
provoked_resets_count(void **state)
{
    static const uint8_t too_much[4] = {0x7f, 0xff, 0xff, 0xff};
    struct cn_grpc_limits limits = test_limits;
    struct test_client *client;
    unsigned n = 0;

    (void)state;
    limits.resets = 5;
    test_start(&limits);
    client = test_client_begin(0, 0, false);
    test_run(client);
    while (!client->lost && n < 30) {
        int32_t stream = test_call(client, "/t/Chat");

        test_run(client);
        send_frame(client->fd, NGHTTP2_WINDOW_UPDATE, 0, (uint32_t)stream, too_much, 4);
        test_run(client);
        n++;
    }
    assert_in_range(n, 10, 12);
    assert_int_equal(seen_by_server.gone, seen_by_server.opened);
    test_client_end(client);
    test_stop();
}

/* Padding is a part of the windows, too. */
static void
padding_is_given_back(void **state)
{
    static uint8_t frame[9 + 256];
    uint8_t payload[256] = {250, 0, 0, 0, 0}; /* five bytes of an empty message, 250 of padding */
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 0, false);
    test_run(client);
    stream = test_call(client, "/t/Chat");
    test_run(client);
    put_frame(frame, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, (uint32_t)stream, payload, 256);
    for (unsigned i = 0; i < 50000; i++) {
        send_raw(client->fd, frame, sizeof(frame));
        if (i % 64 == 0) {
            cn_loop_turn(loop, 0);
            test_run(client);
        }
    }
    test_run(client);
    assert_false(client->lost);
    assert_false(test_seen_of(client, stream)->closed);
    assert_int_equal(seen_by_server.messages, 50000);
    test_client_end(client);
    test_stop();
}

/* --- time */

static void
a_silent_client_is_pinged(void **state)
{
    static const uint32_t keepalives[] = {1000, 5000, 19000, 60000};

    (void)state;
    for (unsigned k = 0; k < 4; k++) {
        struct cn_grpc_limits limits = test_limits;
        struct test_client *client;

        limits.keepalive_ms = keepalives[k];
        test_start(&limits);
        client = test_client_begin(0, 0, false);
        test_run(client);
        for (unsigned i = 0; i < 300; i++)
            test_wait(client, 1000);
        assert_false(client->lost); /* it answers */
        client->reads = false;      /* it does not any more */
        for (unsigned i = 0; i < keepalives[k] / 1000 + 25; i++)
            test_wait(client, 1000);
        assert_null(test_conn());
        test_client_end(client);
        test_stop();
    }
}

static void
a_stuck_client_is_dropped(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    large_bytes = 1 << 20;
    client = test_client_begin(4096, 1 << 30, false);
    nghttp2_session_set_local_window_size(client->h2, 0, 0, 1 << 30);
    test_run(client);
    client->reads = false;
    stream = test_call(client, "/t/Large");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    assert_non_null(test_conn());
    assert_true(test_conn()->out.len > 0);
    for (unsigned i = 0; i < 29; i++)
        test_wait(client, 1000);
    assert_non_null(test_conn());
    test_wait(client, 1000);
    test_wait(client, 1000);
    assert_null(test_conn());
    assert_int_equal(seen_by_server.gone, 1);
    assert_int_equal(seen_by_server.sent, 1);
    test_client_end(client);
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unread_frames_are_bounded),
        cmocka_unit_test(unread_frames_of_one_read_are_bounded),
        cmocka_unit_test(read_frames_are_not_bounded),
        cmocka_unit_test(a_long_goaway_ends_the_connection),
        cmocka_unit_test(pings_are_answered_and_bounded),
        cmocka_unit_test(provoked_resets_count),
        cmocka_unit_test(a_silent_client_is_pinged),
        cmocka_unit_test(a_stuck_client_is_dropped),
        cmocka_unit_test(padding_is_given_back),
    };

    return cmocka_run_group_tests_name("grpc.connection", tests, NULL, NULL);
}
