/* grpc/transport/incoming_test.c - tests how a client's messages are put together, and what it may
 * send before they are read. */
#include "grpc/transport/test_client.h"

#include "frontend/intake/compress.h"
#include "frontend/intake/request_bytes.h"

static struct test_client *
begin(const struct cn_grpc_limits *limits)
{
    struct test_client *client;

    test_start(limits);
    client = test_client_begin(0, 0, false);
    test_run(client);
    return client;
}

static void
end(struct test_client *client)
{
    test_client_end(client);
    test_stop();
}

/* Three messages, one of them empty, as one string of bytes. */
static const char three[] = "\0\0\0\0\5first\0\0\0\0\0\0\0\0\0\3end";
#define THREE_BYTES (sizeof(three) - 1)

static void
messages_are_cut_anywhere(void **state)
{
    (void)state;
    for (size_t first = 0; first <= THREE_BYTES; first++)
        for (size_t second = first; second <= THREE_BYTES; second += 3) {
            struct test_client *client = begin(NULL);
            int32_t stream = test_call(client, "/t/Chat");

            test_send_bytes(client, stream, three, first, false);
            test_run(client);
            test_send_bytes(client, stream, three + first, second - first, false);
            test_run(client);
            test_send_bytes(client, stream, three + second, THREE_BYTES - second, true);
            test_run(client);
            test_expect(client, stream, "0", THREE_BYTES);
            assert_memory_equal(test_seen_of(client, stream)->data.data, three, THREE_BYTES);
            assert_int_equal(seen_by_server.messages, 3);
            assert_int_equal(seen_by_server.half_closed, 1);
            assert_int_equal(seen_by_server.gone, 0);
            end(client);
        }
}

/* The client's bytes end here. */
static void
the_end_may_come_anywhere(void **state)
{
    (void)state;
    for (size_t len = 0; len <= THREE_BYTES; len++) {
        const bool whole = len == 0 || len == 10 || len == 15 || len == THREE_BYTES;
        struct test_client *client = begin(NULL);
        int32_t chat = test_call(client, "/t/Chat"), slow = test_call(client, "/t/Slow"),
                echo = test_call(client, "/t/Echo");

        test_send_bytes(client, chat, three, len, true);
        test_send_bytes(client, slow, three, len, true);
        test_send_bytes(client, echo, three, len, true);
        test_run(client);
        assert_true(test_seen_of(client, chat)->ended);
        assert_int_equal(strcmp(test_seen_of(client, chat)->status, "0") == 0, whole);
        assert_int_equal(test_seen_of(client, slow)->ended, len < 10);
        test_expect(client, echo, len < 10 ? "13" : "0", len < 10 ? 0 : 10);
        end(client);
    }
}

/* A method that does not ask for messages stops its client, but not the other calls. */
static void
a_slow_method_stops_its_client(void **state)
{
    struct test_client *client = begin(NULL);
    int32_t slow = test_call(client, "/t/Slow"), echo;
    static char text[20000];
    uint64_t sum = 0;

    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        memset(text, 'a' + (int)(i % 26), sizeof(text));
        test_send(client, slow, text, 100 * i, false);
        for (unsigned k = 0; k < 100 * i; k++)
            sum = sum * 31 + (uint8_t)text[k];
    }
    test_send_bytes(client, slow, NULL, 0, true);
    test_run(client);
    assert_int_equal(seen_by_server.messages, 1);
    assert_in_range(seen_by_server.last->in.rest.len, 900000, CN_GRPC_STREAM_WINDOW);
    echo = test_call(client, "/t/Echo");
    test_send(client, echo, "x", 1, true);
    test_run(client);
    test_expect(client, echo, "0", 6);
    memset(&seen_by_server.sum, 0, sizeof(seen_by_server.sum));
    for (unsigned i = 1; i < 201; i++) {
        struct cn_grpc_call *call =
            cn_container_of(test_conn()->calls.next, struct cn_grpc_call, link);

        cn_grpc_call_read(call);
        test_run(client);
    }
    assert_int_equal(seen_by_server.messages, 201);
    assert_int_equal(seen_by_server.sum, sum);
    assert_int_equal(seen_by_server.half_closed, 1);
    test_expect(client, slow, "0", 0);
    end(client);
}

/* All bytes are counted once, also those of calls that have ended: the windows never close. */
static void
windows_do_not_shrink(void **state)
{
    struct test_client *client = begin(NULL);
    static char text[900000];

    (void)state;
    for (unsigned i = 0; i < 30; i++) {
        int32_t echo = test_call(client, i % 3 ? "/t/Refuse" : "/nobody/Nothing");

        test_send(client, echo, text, sizeof(text), false);
        test_send(client, echo, text, sizeof(text), true);
        test_run(client);
        assert_true(test_seen_of(client, echo)->ended);
    }
    assert_in_range(nghttp2_session_get_remote_window_size(client->h2),
                    CN_GRPC_CONNECTION_WINDOW / 2, CN_GRPC_CONNECTION_WINDOW);
    end(client);
}

/* One call that goes on for much longer than its window is wide, with messages of all sizes. */
static void
a_long_stream_goes_on(void **state)
{
    struct test_client *client = begin(NULL);
    int32_t stream = test_call(client, "/t/Chat");
    static char text[70000];
    size_t sum = 0;

    (void)state;
    for (unsigned i = 0; i < 400; i++) {
        const size_t len = i * 7919 % sizeof(text);

        test_send(client, stream, text, len, i == 399);
        sum += len + 5;
        if (i % 7 == 0)
            test_run(client);
    }
    test_run(client);
    test_expect(client, stream, "0", sum);
    assert_int_equal(seen_by_server.sent, 400);
    end(client);
}

static void
wrong_messages_end_the_call(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *coding, *status;
    } cases[] = {
        {"\2\0\0\0\1x", 6, NULL, "13"},       {"\1\0\0\0\1x", 6, NULL, "13"},
        {"\1\0\0\0\1x", 6, "gzip", "3"},      {"\1\0\0\0\0", 5, "gzip", "3"},
        {"\0\xff\xff\xff\xff", 5, NULL, "8"}, {"\0\0\x40\0\1", 5, NULL, "8"},
        {"\0\0\0\0\1x", 6, "snappy", "12"},
    };
    struct test_client *client = begin(NULL);

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (unsigned k = 0; k < 2; k++) {
            int32_t stream = test_call_with(client, k ? "/t/Chat" : "/t/Echo",
                                            cases[i].coding ? "grpc-encoding" : NULL,
                                            cases[i].coding, NULL, NULL);

            test_send_bytes(client, stream, cases[i].bytes, cases[i].len, false);
            test_run(client);
            test_expect(client, stream, cases[i].status, 0);
            test_wait(client, 501); /* the client's last frame is awaited */
            assert_true(test_seen_of(client, stream)->closed);
        }
    end(client);
}

static void
messages_may_be_compressed(void **state)
{
    static char text[100000], packed[4096];
    const char *names[] = {"gzip", "deflate"};
    struct cn_grpc_limits limits = test_limits;
    struct test_client *client;

    (void)state;
    limits.message_bytes = sizeof(text);
    client = begin(&limits);
    for (unsigned i = 0; i < 4; i++) {
        const bool large = i >= 2; /* one byte more than is allowed */
        const size_t len = sizeof(text) - (large ? 0 : 1);
        struct cn_compressor *compressor;
        uint8_t prefix[5] = {1};
        size_t n = 0, more;
        int32_t stream;

        grpc->limits.message_bytes = sizeof(text) - 1;
        compressor = cn_compressor_create(i % 2 ? CN_CODING_DEFLATE : CN_CODING_GZIP,
                                          (struct cn_str){text, len});
        while ((more = cn_compressor_read(compressor, packed + n, sizeof(packed) - n)) > 0)
            n += more;
        cn_compressor_destroy(compressor);
        stream = test_call_with(client, "/t/Echo", "grpc-encoding", names[i % 2], NULL, NULL);
        prefix[3] = (uint8_t)(n >> 8);
        prefix[4] = (uint8_t)n;
        test_send_bytes(client, stream, prefix, 5, false);
        test_send_bytes(client, stream, packed, n, true);
        test_run(client);
        test_expect(client, stream, large ? "8" : "0", large ? 0 : len + 5);
    }
    end(client);
}

/* What a method has not asked for counts as held, and is refused when too much is. */
static void
what_waits_is_counted(void **state)
{
    struct test_client *client = begin(NULL);
    static char text[900000];

    (void)state;
    cn_request_bytes_set_limit(4u << 20);
    for (unsigned i = 0; i < 8; i++) {
        int32_t slow = test_call(client, "/t/Slow");

        for (unsigned k = 0; k < 9; k++)
            test_send(client, slow, text, 100000, false);
    }
    test_run(client);
    test_wait(client, 501);
    assert_in_range(seen_by_server.gone + seen_by_server.freed, 3, 8);
    assert_true(cn_request_bytes_fit(0));
    test_client_end(client);
    test_stop();
    assert_true(cn_request_bytes_fit((4u << 20) - 1));
    cn_request_bytes_set_limit(UINT64_MAX);
}

/* --- large messages */

/* What the client has to send now. */
static struct cn_buf
frames_of(struct test_client *client)
{
    const uint8_t *bytes;
    struct cn_buf all;
    ssize_t n;

    cn_buf_init(&all, 0);
    while ((n = nghttp2_session_mem_send(client->h2, &bytes)) > 0)
        cn_buf_append(&all, bytes, (size_t)n);
    return all;
}

/* Bytes that go to the message at once leave the site's buffer as it is. Returns whether there
 * was room for all of them. */
static bool
send_piece(struct test_client *client, const char *bytes, size_t len)
{
    static const char untouched[] = "untouched";
    const struct iovec room = cn_grpc_session_room(test_conn());
    const bool fits = room.iov_len >= len;
    const struct cn_grpc_inbox *in;
    char *site_in = (char *)grpc->sites[0].in;

    if (room.iov_len > 0) {
        in = &seen_by_server.last->in;
        assert_ptr_equal(room.iov_base, in->bytes + in->have);
        assert_true(room.iov_len <= in->room - in->have);
    }
    memcpy(site_in, untouched, sizeof(untouched));
    assert_int_equal(test_write(client, bytes, len), len);
    cn_loop_turn(loop, 0);
    assert_int_equal(strcmp(site_in, untouched) == 0, fits);
    return fits;
}

/* However its frames are cut, a large message is whole, and most of it is read to its place. */
static void
a_large_message_is_read_to_its_place(void **state)
{
    static const size_t pieces[] = {997, 5000, 16393, 65536, 99991};
    static char text[700000];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * 31 / 7);
    for (unsigned i = 0; i < 10; i++) {
        const size_t most = pieces[i / 2];
        struct test_client *client = begin(NULL);
        int32_t echo = test_call(client, "/t/Echo");
        size_t direct = 0, n;
        struct cn_buf all;

        test_frame_bytes = i % 2 ? 250000 : 16384;
        test_send(client, echo, text, sizeof(text), true);
        all = frames_of(client);
        for (size_t at = 0; at < all.len; at += n) {
            n = all.len - at < most ? all.len - at : most;
            direct += send_piece(client, all.data + at, n) ? n : 0;
        }
        if (i % 2)
            assert_in_range(direct, sizeof(text) / 2, sizeof(text));
        test_run(client);
        test_expect(client, echo, "0", 5 + sizeof(text));
        assert_memory_equal(test_seen_of(client, echo)->data.data + 5, text, sizeof(text));
        cn_buf_fini(&all);
        end(client);
    }
    test_frame_bytes = 16384;
}

/* A client that announces a large message and a large frame gets no memory for it before it has
 * sent something, and what it has sent is counted. */
static void
room_grows_with_the_bytes(void **state)
{
    const uint64_t limit = 64u << 20;
    static char text[300000];
    struct test_client *client = begin(NULL);
    int32_t echo = test_call(client, "/t/Echo");
    struct cn_grpc_inbox *in;
    struct cn_buf all;
    size_t n;

    (void)state;
    cn_request_bytes_set_limit(limit);
    test_frame_bytes = 250000;
    test_send_bytes(client, echo, "\0\0\x40\0\0", 5, false); /* 4 MiB, the most */
    test_run(client);
    in = &seen_by_server.last->in;
    assert_int_equal(in->len, 4 << 20);
    assert_int_equal(in->room, 0);
    test_send_bytes(client, echo, text, sizeof(text), false);
    all = frames_of(client);
    for (size_t at = 0; at < all.len; at += n) {
        n = all.len - at < 3000 ? all.len - at : 3000;
        send_piece(client, all.data + at, n);
        assert_in_range(in->room, in->have, in->have < 128 ? 4096 : 32 * in->have);
        assert_true(cn_request_bytes_fit(limit - in->have));
        assert_false(cn_request_bytes_fit(limit - in->have + CN_REQUEST_BYTES_STEP));
    }
    assert_int_equal(in->have, sizeof(text));
    cn_buf_fini(&all);
    end(client);
    test_frame_bytes = 16384;
    cn_request_bytes_set_limit(UINT64_MAX);
}

/* The call ends in the middle of a frame: because too many bytes are held, or as the server wants.
 * The rest of the frame is dropped, and the next call is served. */
static void
a_call_may_end_inside_of_a_frame(void **state)
{
    static char text[900000];

    (void)state;
    test_frame_bytes = 250000;
    for (unsigned aborts = 0; aborts < 2; aborts++) {
        struct test_client *client = begin(NULL);
        int32_t echo = test_call(client, "/t/Echo"), next;
        struct cn_buf all;
        size_t n;

        cn_request_bytes_set_limit(aborts ? UINT64_MAX : 400000);
        test_send(client, echo, text, sizeof(text), true);
        all = frames_of(client);
        for (size_t at = 0; at < all.len; at += n) {
            n = all.len - at < 50000 ? all.len - at : 50000;
            assert_int_equal(test_write(client, all.data + at, n), n);
            cn_loop_turn(loop, 0);
            if (aborts && at == 500000)
                cn_grpc_call_abort(seen_by_server.last, 10, "enough");
        }
        test_run(client);
        test_expect(client, echo, aborts ? "10" : "14", 0);
        next = test_call(client, "/t/Echo");
        test_send(client, next, text, 100000, true);
        test_run(client);
        test_expect(client, next, "0", 100005);
        cn_buf_fini(&all);
        end(client);
    }
    test_frame_bytes = 16384;
    cn_request_bytes_set_limit(UINT64_MAX);
}

/* A message that has begun must be complete in time, however often a few bytes of it come. A client
 * that sends nothing is not in the middle of a message. */
static void
a_slow_message_ends_its_call(void **state)
{
    struct test_client *client = begin(NULL);
    int32_t slow = test_call(client, "/t/Chat"), idle = test_call(client, "/t/Chat");

    (void)state;
    test_send(client, idle, "whole", 5, false);
    test_send_bytes(client, slow, "\0\0\0\0\11", 5, false);
    test_run(client);
    for (unsigned i = 0; i < 19; i++) {
        test_wait(client, 1000);
        if (i % 4 == 0)
            test_send_bytes(client, slow, "x", 1, false);
        test_run(client);
        assert_false(test_seen_of(client, slow)->ended);
    }
    test_wait(client, 1100);
    test_expect(client, slow, "4", 0);
    assert_int_equal(seen_by_server.gone, 1);
    test_wait(client, 30000);
    assert_false(test_seen_of(client, idle)->ended);
    end(client);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_cut_anywhere),
        cmocka_unit_test(the_end_may_come_anywhere),
        cmocka_unit_test(a_slow_method_stops_its_client),
        cmocka_unit_test(windows_do_not_shrink),
        cmocka_unit_test(a_long_stream_goes_on),
        cmocka_unit_test(wrong_messages_end_the_call),
        cmocka_unit_test(messages_may_be_compressed),
        cmocka_unit_test(what_waits_is_counted),
        cmocka_unit_test(a_large_message_is_read_to_its_place),
        cmocka_unit_test(room_grows_with_the_bytes),
        cmocka_unit_test(a_call_may_end_inside_of_a_frame),
        cmocka_unit_test(a_slow_message_ends_its_call),
    };

    return cmocka_run_group_tests_name("grpc.incoming", tests, NULL, NULL);
}
