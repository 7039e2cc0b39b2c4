/* grpc/transport/send_test.c - tests how answers are sent: frames, windows, status, resets. */
#include "grpc/transport/test_client.h"

#include "frontend/http/compress.h"
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_fill_the_buffer_at_every_length),
    };

    return cmocka_run_group_tests_name("grpc.send", tests, NULL, NULL);
}
