/* grpc/transport/outgoing_test.c - tests how answers are sent: frames, windows, status, resets. */
#include "grpc/transport/test_client.h"

#include "frontend/intake/compress.h"
#include "frontend/intake/unread.h"

/* However the frames of a turn fall into the connection's buffer, nothing is written behind it. The
 * answer of the first call moves the end of the second one's last frame over the buffer's end. */
static void
frames_fill_the_buffer_at_every_length(void **state)
{
    (void)state;
    for (size_t first = 15700; first < 16384; first++) {
        struct test_client *client;
        int32_t a, b;

        test_start(NULL);
        client = test_client_begin(0, 1 << 20, false);
        nghttp2_session_set_local_window_size(client->h2, 0, 0, 1 << 20);
        test_run(client);
        a = test_call(client, "/t/Echo");
        b = test_call(client, "/t/Large");
        large_bytes = 7 * 16384 - 5;
        {
            static char zeros[16384];

            test_send(client, a, zeros, first, true);
        }
        test_send(client, b, "x", 1, true);
        test_run(client);
        test_expect(client, a, "0", first + 5);
        test_expect(client, b, "0", large_bytes + 5);
        assert_int_equal(seen_by_server.sent, 2);
        test_client_end(client);
        test_stop();
    }
}

/* --- windows */

/* A client whose window is closed gets what its window allows, and the rest when it opens it. */
static void
answers_wait_for_the_window(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    large_bytes = 200000;
    client = test_client_begin(0, 1000, true);
    test_run(client);
    stream = test_call(client, "/t/Large");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    assert_int_equal(test_seen_of(client, stream)->data.len, 1000);
    for (unsigned i = 0; i < 1000 && !test_seen_of(client, stream)->ended; i++) {
        nghttp2_session_consume(client->h2, stream, 1000);
        nghttp2_submit_window_update(client->h2, 0, stream, 300);
        test_run(client);
        assert_int_equal(seen_by_server.sent, test_seen_of(client, stream)->ended);
    }
    test_expect(client, stream, "0", large_bytes + 5);
    assert_int_equal(seen_by_server.sent_bytes, large_bytes);
    test_client_end(client);
    test_stop();
}

/* A status needs no window. The message takes all of it, and the call ends later. */
static void
a_status_passes_a_closed_window(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 105, true);
    test_run(client);
    stream = test_call(client, "/t/Chat");
    test_send(client, stream,
              "0123456789012345678901234567890123456789012345678901234567890123456"
              "789012345678901234567890123456789",
              100, false);
    test_run(client);
    assert_int_equal(test_seen_of(client, stream)->data.len, 105);
    test_send_bytes(client, stream, NULL, 0, true);
    test_run(client);
    test_expect(client, stream, "0", 105);
    assert_int_equal(seen_by_server.freed, 1);
    test_client_end(client);
    test_stop();
}

/* The client takes the first of two answers and half-closes. The second one is late, so the call
 * does not end as if both had been sent, although its method has nothing left to send. */
static void
answers_that_are_dropped_are_no_success(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 6, true);
    test_run(client);
    stream = test_call(client, "/t/Owing");
    test_send(client, stream, "1", 1, false);
    test_send(client, stream, "2", 1, true);
    test_run(client);
    assert_int_equal(seen_by_server.half_closed, 1);
    assert_int_equal(seen_by_server.sent, 1);
    test_wait(client, test_limits.write_ms + 100);
    assert_int_equal(seen_by_server.sent, 2);
    test_expect(client, stream, "4", 6);
    test_client_end(client);
    test_stop();
}

/* A client must take a message in time, however often it takes a few bytes of it. */
static void
a_slow_reader_loses_its_call(void **state)
{
    struct test_client *client;
    char text[1000] = {0};
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 10, true);
    test_run(client);
    stream = test_call(client, "/t/Chat");
    test_send(client, stream, text, sizeof(text), false);
    test_run(client);
    for (unsigned i = 0; i < 29; i++) {
        nghttp2_submit_window_update(client->h2, 0, stream, 1);
        test_run(client);
        test_wait(client, 1000);
        assert_false(test_seen_of(client, stream)->closed);
    }
    assert_int_equal(test_seen_of(client, stream)->data.len, 10 + 29);
    test_wait(client, 1100);
    assert_true(test_seen_of(client, stream)->closed);
    assert_int_equal(seen_by_server.gone, 1);
    test_client_end(client);
    test_stop();
}

/* The client reads nothing of a call that is not at its end: it ends all the same. */
static void
an_unread_call_ends(void **state)
{
    static const uint32_t windows[] = {0, 3, 105, 109, 200};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        struct test_client *client;
        char text[100] = {0};
        int32_t stream;

        test_start(NULL);
        client = test_client_begin(0, windows[i], true);
        test_run(client);
        stream = test_call(client, "/t/Chat");
        for (unsigned k = 0; k < 3; k++)
            test_send(client, stream, text, 100, false);
        test_run(client);
        assert_int_equal(test_seen_of(client, stream)->data.len, windows[i]);
        test_wait(client, 29000);
        assert_false(test_seen_of(client, stream)->closed);
        test_wait(client, 1100);
        assert_true(test_seen_of(client, stream)->closed);
        assert_int_equal(seen_by_server.sent, 3);
        assert_int_equal(seen_by_server.gone, 1);
        assert_int_equal(seen_by_server.freed, 1);
        test_client_end(client);
        test_stop();
    }
}

/* --- what waits too long */

/* The last message of a call is dropped because too much waits: its status must say so. */
static void
a_dropped_answer_is_not_a_success(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    cn_unread_set_limit(1 << 20);
    large_bytes = 2 << 20;
    client = test_client_begin(0, 0, false);
    test_run(client);
    stream = test_call(client, "/t/Large");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    test_expect(client, stream, "8", 0);
    stream = test_call(client, "/t/Twice");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    test_expect(client, stream, "8", 0);
    assert_int_equal(seen_by_server.sent, 3);
    assert_int_equal(seen_by_server.gone, 2);
    test_client_end(client);
    test_stop();
    cn_unread_set_limit(UINT64_MAX);
}

/* An answer that has begun cannot end with a status any more, so the reset has to say why. */
static void
the_oldest_answer_is_reset_for_its_size(void **state)
{
    struct test_client *client;
    int32_t first, second;

    (void)state;
    test_start(NULL);
    cn_unread_set_limit(3 << 20);
    large_bytes = 2 << 20;
    client = test_client_begin(0, 1000, true);
    test_run(client);
    first = test_call(client, "/t/Large");
    test_send(client, first, "x", 1, true);
    test_run(client);
    assert_false(test_seen_of(client, first)->closed);
    second = test_call(client, "/t/Large");
    test_send(client, second, "x", 1, true);
    test_run(client);
    assert_true(test_seen_of(client, first)->closed);
    assert_int_equal(test_seen_of(client, first)->close_code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_false(test_seen_of(client, second)->closed);
    test_client_end(client);
    test_stop();
    cn_unread_set_limit(UINT64_MAX);
}

/* A client that does not read yet, with windows in which a large answer fits. */
static struct test_client *
begin_deaf_client(size_t answer_bytes)
{
    struct test_client *client = test_client_begin(4096, 8 << 20, true);
    int32_t stream;

    large_bytes = answer_bytes;
    nghttp2_session_set_local_window_size(client->h2, NGHTTP2_FLAG_NONE, 0, 8 << 20);
    test_run(client);
    client->reads = false;
    stream = test_call(client, "/t/Large");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    return client;
}

/* When too much waits, the bytes that have waited longest for a socket are dropped with their
 * connection, as unread answers of calls are. No byte counts twice on its way there. */
static void
kept_bytes_count_as_unread(void **state)
{
    struct test_client *deaf, *other;
    int32_t stream;

    (void)state;
    test_start(NULL);
    cn_unread_set_limit(1000000);
    deaf = begin_deaf_client(900000);
    assert_int_equal(seen_by_server.sent, 1);
    assert_in_range(test_conn()->unread.bytes, 800000, 900000);
    other = test_client_begin(0, 0, false);
    stream = test_call(other, "/t/Large");
    test_send(other, stream, "x", 1, true);
    test_run(other);
    test_expect(other, stream, "0", 900005);
    deaf->reads = true;
    test_run(deaf);
    assert_true(deaf->lost);
    assert_false(other->lost);
    test_client_end(deaf);
    test_client_end(other);
    test_stop();
    cn_unread_set_limit(UINT64_MAX);
}

/* Reads at least this many bytes of what the server keeps for its socket. */
static void
read_some(struct test_client *client, size_t len)
{
    static char bytes[65536];
    ssize_t n;

    for (size_t done = 0; done < len; done += (size_t)n) {
        n = recv(client->fd, bytes, sizeof(bytes), 0);
        assert_true(n > 0);
        cn_loop_turn(loop, 0);
    }
}

/* A connection lives on as long as its client reads 256 KiB in each write-timeout. */
static void
a_steady_reader_keeps_its_connection(void **state)
{
    struct test_client *client;

    (void)state;
    test_start(NULL);
    client = begin_deaf_client(1000000);
    for (unsigned i = 0; i < 3; i++) {
        test_wait(NULL, 29000);
        assert_non_null(test_conn());
        read_some(client, 280000);
        test_conn()->heard_ms = cn_loop_now_ms(loop); /* or it would be pinged */
    }
    test_wait(NULL, 15000);
    read_some(client, 1000); /* too little to count */
    test_wait(NULL, 14000);
    assert_non_null(test_conn());
    test_wait(NULL, 1100);
    assert_null(test_conn());
    test_client_end(client);
    test_stop();
}

/* --- the status */

static void
a_status_is_encoded(void **state)
{
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 0, false);
    stream = test_call(client, "/t/Refuse");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    test_expect(client, stream, "3", 0);
    assert_string_equal(test_seen_of(client, stream)->message, "%2050 %25 of %C3%A4%0A%20");
    stream = test_call(client, "/nobody/Nothing");
    test_run(client);
    test_expect(client, stream, "12", 0);
    assert_true(test_seen_of(client, stream)->closed);
    test_client_end(client);
    test_stop();
}

static void
a_large_answer_is_compressed(void **state)
{
    struct cn_grpc_limits limits = test_limits;
    struct test_client *client;
    struct test_seen *seen;
    struct cn_buf inflated;
    int32_t stream;

    (void)state;
    limits.compress_bytes = 100;
    test_start(&limits);
    client = test_client_begin(0, 0, false);
    for (unsigned i = 0; i < 3; i++) {
        static const size_t sizes[] = {99, 100, 300000};
        static char text[300000];
        const bool small = sizes[i] != 100; /* or too large to be compressed at once */

        stream =
            test_call_with(client, "/t/Echo", "grpc-accept-encoding", "deflate, gzip", NULL, NULL);
        test_send(client, stream, text, sizes[i], true);
        test_run(client);
        seen = test_seen_of(client, stream);
        assert_string_equal(seen->encoding, "gzip");
        assert_int_equal(seen->data.data[0], !small);
        if (small) {
            test_expect(client, stream, "0", 5 + sizes[i]);
            continue;
        }
        cn_buf_init(&inflated, 0);
        assert_int_equal(cn_inflate((struct cn_str){seen->data.data + 5, seen->data.len - 5}, 1000,
                                    &inflated, NULL),
                         0);
        assert_int_equal(inflated.len, 100);
        cn_buf_fini(&inflated);
    }
    stream = test_call(client, "/t/Echo");
    test_send(client, stream, "x", 1, true);
    test_run(client);
    assert_string_equal(test_seen_of(client, stream)->encoding, "");
    test_client_end(client);
    test_stop();
}

/* Each answer has its own value of a header. Only the first answer of a connection spells the
 * header's name; later ones refer to the client's table for all but the value. */
static void
names_of_headers_are_spelled_once(void **state)
{
    static const char *const notes[] = {"aaaa", "abba", "baab"};
    struct test_client *client;
    size_t first = 0;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 0, false);
    test_run(client);
    for (unsigned i = 0; i < 3; i++) {
        int32_t stream = test_call(client, "/t/Noted");
        const struct test_seen *seen = test_seen_of(client, stream);

        test_send(client, stream, notes[i], 4, true);
        test_run(client);
        test_expect(client, stream, "0", 9);
        assert_string_equal(seen->note, notes[i]);
        if (i == 0)
            first = seen->head_bytes;
        else
            assert_true(seen->head_bytes <= 9 && seen->head_bytes < first);
    }
    test_client_end(client);
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_fill_the_buffer_at_every_length),
        cmocka_unit_test(answers_wait_for_the_window),
        cmocka_unit_test(a_status_passes_a_closed_window),
        cmocka_unit_test(a_slow_reader_loses_its_call),
        cmocka_unit_test(an_unread_call_ends),
        cmocka_unit_test(a_dropped_answer_is_not_a_success),
        cmocka_unit_test(answers_that_are_dropped_are_no_success),
        cmocka_unit_test(the_oldest_answer_is_reset_for_its_size),
        cmocka_unit_test(kept_bytes_count_as_unread),
        cmocka_unit_test(a_steady_reader_keeps_its_connection),
        cmocka_unit_test(a_status_is_encoded),
        cmocka_unit_test(a_large_answer_is_compressed),
        cmocka_unit_test(names_of_headers_are_spelled_once),
    };

    return cmocka_run_group_tests_name("grpc.outgoing", tests, NULL, NULL);
}
