/* grpc/transport/connection_end_test.c - tests how calls and connections end: at every stage of a
 * call, by the client or by the server. */
#include "grpc/transport/test_client.h"

/* --- the end of calls */

/* What a client does to its call at some stage. */
enum { RESET, CLOSE, GOAWAY, N_ENDS };

static void
end_client_side(struct test_client *client, int32_t stream, unsigned how)
{
    if (how == RESET) {
        nghttp2_submit_rst_stream(client->h2, 0, stream, NGHTTP2_CANCEL);
    } else if (how == CLOSE) {
        close(client->fd);
        client->fd = -1;
        client->lost = true;
        cn_loop_turn(loop, 0);
        return;
    } else {
        nghttp2_submit_goaway(client->h2, 0, 0, NGHTTP2_NO_ERROR, NULL, 0);
    }
    test_run(client);
}

/* The stages of a call, each one up to its end. Returns the stream. */
static int32_t
call_until(struct test_client *client, unsigned stage)
{
    static char text[50000];
    int32_t stream = test_call(client, stage >= 4 ? "/t/Chat" : "/t/Slow");

    switch (stage) {
    case 0: /* the head only */
        break;
    case 1: /* a part of a prefix */
        test_send_bytes(client, stream, "\0\0", 2, false);
        break;
    case 2: /* a part of a message */
        test_send_bytes(client, stream, "\0\0\0\1\0abc", 8, false);
        break;
    case 3: /* two messages, of which the second waits */
        test_send(client, stream, "a", 1, false);
        test_send(client, stream, "b", 1, false);
        break;
    case 4: /* answers that the window does not let through */
        for (unsigned i = 0; i < 4; i++)
            test_send(client, stream, text, sizeof(text), false);
        break;
    default: /* the same after the client's last byte */
        for (unsigned i = 0; i < 4; i++)
            test_send(client, stream, text, sizeof(text), i == 3);
    }
    test_run(client);
    return stream;
}

static void
calls_end_at_every_stage(void **state)
{
    (void)state;
    for (unsigned stage = 0; stage < 6; stage++)
        for (unsigned how = 0; how < N_ENDS; how++)
            for (unsigned held = 0; held < 2; held++) {
                struct test_client *client;
                struct cn_grpc_call *call;
                int32_t stream;

                test_start(NULL);
                client = test_client_begin(0, 60000, true);
                test_run(client);
                stream = call_until(client, stage);
                call = seen_by_server.last;
                assert_non_null(call);
                if (held)
                    cn_grpc_call_hold(call);
                end_client_side(client, stream, how);
                if (how == GOAWAY) { /* the call goes on, and new ones are possible */
                    assert_int_equal(seen_by_server.gone, 0);
                    end_client_side(client, stream, RESET);
                }
                assert_int_equal(seen_by_server.gone, 1);
                assert_int_equal(seen_by_server.freed, !held);
                assert_int_equal(seen_by_server.sent, stage >= 4 ? 4 : 0);
                if (held) { /* what the method still does has no effect */
                    struct cn_grpc_outgoing out = {.body = CN_STR("late"),
                                                   .owner = &seen_by_server};

                    assert_true(cn_grpc_call_is_gone(call));
                    assert_true(atomic_load(cn_grpc_call_left(call)));
                    cn_grpc_call_send(call, &out);
                    cn_grpc_call_finish(call, &out, &(struct cn_grpc_status){0});
                    cn_loop_turn(loop, 0);
                    cn_grpc_call_release(call);
                    assert_int_equal(seen_by_server.freed, 1);
                    assert_int_equal(seen_by_server.sent, stage >= 4 ? 6 : 2);
                }
                test_client_end(client);
                test_stop();
            }
}

/* The method of a refused call does not know of it. So nothing is reported to it either when the
 * client leaves, or the server stops, before the client has its answer. */
static void
a_refused_call_is_unknown_to_its_method(void **state)
{
    (void)state;
    for (unsigned drains = 0; drains < 2; drains++) {
        struct test_client *client;
        int32_t stream;

        test_start(NULL);
        client = test_client_begin(0, 0, false);
        test_run(client);
        stream = test_call_with(client, "/t/Chat", "grpc-timeout", "soon", NULL, NULL);
        test_client_move(client);
        if (drains)
            cn_grpc_server_drain(server);
        else
            nghttp2_submit_rst_stream(client->h2, 0, stream, NGHTTP2_CANCEL);
        test_run(client);
        assert_int_equal(seen_by_server.opened, 0);
        assert_int_equal(seen_by_server.gone, 0);
        assert_int_equal(seen_by_server.drained, 0);
        assert_int_equal(seen_by_server.freed, 1);
        test_client_end(client);
        test_stop();
    }
}

/* The last frames of a call may be headers (trailers), which gRPC's clients do not send. */
static void
trailers_of_a_client_are_ignored(void **state)
{
    const nghttp2_nv trailer = TEST_NV("x", "y");
    struct test_client *client;
    int32_t stream;

    (void)state;
    test_start(NULL);
    client = test_client_begin(0, 0, false);
    stream = test_call(client, "/t/Chat");
    test_send(client, stream, "x", 1, false);
    test_run(client);
    assert_int_equal(nghttp2_submit_trailer(client->h2, stream, &trailer, 1), 0);
    test_run(client);
    test_expect(client, stream, "0", 6);
    assert_int_equal(seen_by_server.half_closed, 1);
    test_client_end(client);
    test_stop();
}

/* --- the end of the server */

static void
a_drain_ends_calls_and_connections(void **state)
{
    struct test_client *client, *idle, *busy;
    int32_t chat, slow;
    unsigned i;

    (void)state;
    test_start(NULL);
    idle = test_client_begin(0, 0, false);
    client = test_client_begin(0, 0, false);
    busy = test_client_begin(4096, 1 << 20, false);
    test_run(idle);
    test_run(client);
    test_run(busy);
    chat = test_call(client, "/t/Chat");
    test_send(client, chat, "x", 1, false);
    large_bytes = 1 << 19;
    busy->reads = false;
    slow = test_call(busy, "/t/Large");
    test_send(busy, slow, "x", 1, true);
    test_run(client);
    test_run(busy);
    cn_grpc_server_drain(server);
    cn_grpc_server_drain(server);
    for (i = 0; i < 3; i++) {
        test_run(idle);
        test_run(client);
        test_run(busy);
    }
    assert_int_equal(idle->goaways, 1);
    assert_true(idle->lost);
    test_expect(client, chat, "14", 6);
    assert_true(client->lost);
    assert_int_equal(cn_grpc_server_open(server), 3); /* their ends are awaited for a moment */
    close(idle->fd);
    close(client->fd);
    idle->fd = client->fd = -1;
    cn_loop_turn(loop, 0);
    assert_int_equal(cn_grpc_server_open(server), 1);
    busy->reads = true;
    test_run(busy);
    test_expect(busy, slow, "0", large_bytes + 5);
    test_wait(busy, 1100);
    assert_int_equal(cn_grpc_server_open(server), 0);
    test_client_end(idle);
    test_client_end(client);
    test_client_end(busy);
    test_stop();
}

/* A client that does not read does not learn of the drain, and makes a new call. It will be told
 * that the call was not begun, and may make it again elsewhere, so nothing of it may be done. */
static void
a_call_after_the_drain_is_not_begun(void **state)
{
    struct test_client *client;
    int32_t large, late;

    (void)state;
    test_start(NULL);
    client = test_client_begin(4096, 1 << 20, false);
    test_run(client);
    client->reads = false;
    large_bytes = 1 << 19;
    large = test_call(client, "/t/Large");
    test_send(client, large, "x", 1, true);
    test_run(client);
    cn_grpc_server_drain(server);
    cn_loop_turn(loop, 0);
    late = test_call(client, "/t/Echo");
    test_send(client, late, "x", 1, true);
    test_run(client);
    assert_int_equal(seen_by_server.opened, 1);
    client->reads = true;
    test_run(client);
    test_expect(client, large, "0", large_bytes + 5);
    assert_true(test_seen_of(client, late)->closed);
    assert_int_equal(test_seen_of(client, late)->close_code, NGHTTP2_REFUSED_STREAM);
    assert_true(client->lost);
    test_client_end(client);
    test_stop();
}

/* All is dropped, whatever the clients are doing. */
static void
a_cut_frees_all(void **state)
{
    (void)state;
    for (unsigned stage = 0; stage < 6; stage++) {
        struct test_client *client, *other;

        test_start(NULL);
        client = test_client_begin(stage % 2 ? 4096 : 0, 60000, true);
        other = test_client_begin(0, 0, true);
        test_run(client);
        for (unsigned i = 0; i < 10; i++) {
            call_until(client, stage);
            call_until(other, 5 - stage);
        }
        test_stop();
        test_client_end(client);
        test_client_end(other);
    }
}

/* More calls than are allowed: those of a client that does not know of the limit are refused. */
static void
open_calls_are_bounded(void **state)
{
    struct cn_grpc_limits limits = test_limits;
    struct test_client *client;
    int32_t streams[20];
    unsigned refused = 0;

    (void)state;
    limits.streams = 100;
    limits.calls = 10;
    test_start(&limits);
    client = test_client_begin(0, 0, false);
    for (unsigned i = 0; i < 20; i++)
        streams[i] = test_call(client, "/t/Slow");
    test_run(client);
    for (unsigned i = 0; i < 20; i++)
        refused += strcmp(test_seen_of(client, streams[i])->status, "8") == 0;
    assert_int_equal(refused, 10);
    assert_int_equal(seen_by_server.opened, 10);
    end_client_side(client, streams[0], RESET);
    streams[0] = test_call(client, "/t/Echo");
    test_send(client, streams[0], "x", 1, true);
    test_run(client);
    test_expect(client, streams[0], "0", 6);
    test_client_end(client);
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_end_at_every_stage),
        cmocka_unit_test(a_drain_ends_calls_and_connections),
        cmocka_unit_test(a_call_after_the_drain_is_not_begun),
        cmocka_unit_test(a_cut_frees_all),
        cmocka_unit_test(open_calls_are_bounded),
        cmocka_unit_test(a_refused_call_is_unknown_to_its_method),
        cmocka_unit_test(trailers_of_a_client_are_ignored),
    };

    return cmocka_run_group_tests_name("grpc.connection_end", tests, NULL, NULL);
}
