/* frontend/websocket/ws_frames_test.c - tests that messages come whole, however their bytes are
 * cut, and that a client that breaks the protocol is closed with the right code. */
#include "frontend/websocket/ws_frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/websocket/ws_deflate.h"

struct fixture {
    struct cn_ws_frames frames;
    struct cn_buf got; /* the messages, each behind a T or a B, and before a | */
    bool pauses;
};

static void
on_message(struct cn_ws_frames *frames, bool is_text, struct cn_str message)
{
    struct fixture *f = (struct fixture *)frames;

    cn_buf_puts(&f->got, is_text ? "T" : "B");
    cn_buf_append_str(&f->got, message);
    cn_buf_puts(&f->got, "|");
    frames->is_paused = f->pauses;
}

static void
begin(struct fixture *f, struct cn_ws_deflate *deflate)
{
    memset(f, 0, sizeof(*f));
    cn_buf_init(&f->got, 0);
    f->frames.max_bytes = 1000;
    f->frames.deflate = deflate;
    f->frames.window_bits = 15;
    assert_true(cn_ws_frames_init(&f->frames, on_message));
}

static void
end(struct fixture *f)
{
    cn_ws_frames_fini(&f->frames);
    cn_buf_fini(&f->got);
}

/* Appends a frame of a client; its mask is zero. */
static void
put(struct cn_buf *out, unsigned char first, const char *payload, size_t len)
{
    const char head[] = {(char)first, (char)(0x80 | (len < 126 ? len : 126)), (char)(len >> 8),
                         (char)len};

    cn_buf_append(out, head, len < 126 ? 2 : 4);
    cn_buf_append(out, "\0\0\0\0", 4);
    cn_buf_append(out, payload, len);
}

static unsigned
close_code(const struct fixture *f)
{
    const struct cn_buf *out = &f->frames.out;

    for (size_t i = 0; i + 3 < out->len; i++)
        if ((unsigned char)out->data[i] == 0x88)
            return (unsigned)(unsigned char)out->data[i + 2] << 8 | (unsigned char)out->data[i + 3];
    return 0;
}

static void
messages_come_whole_however_they_are_cut(void **state)
{
    struct cn_buf bytes;

    (void)state;
    cn_buf_init(&bytes, 0);
    put(&bytes, 0x81, "hello", 5);
    put(&bytes, 0x02, "a", 1);
    put(&bytes, 0x89, "ping", 4);
    put(&bytes, 0x00, "b", 1);
    put(&bytes, 0x80, "", 0);
    put(&bytes, 0x81, "", 0);
    for (size_t step = 1; step <= bytes.len; step++) {
        struct fixture f;

        begin(&f, NULL);
        for (size_t at = 0; at < bytes.len; at += step)
            cn_ws_frames_take(
                &f.frames,
                (struct cn_str){bytes.data + at, at + step < bytes.len ? step : bytes.len - at});
        assert_true(cn_str_eq(cn_buf_str(&f.got), CN_STR("Thello|Bab|T|")));
        assert_int_equal(f.frames.open_bytes, 0);
        assert_int_equal(f.frames.out.len, 6); /* the pong */
        end(&f);
    }
    cn_buf_fini(&bytes);
}

static void
clients_that_break_the_protocol_are_closed(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        unsigned code;
    } cases[] = {
        {"\x81\x01x", 3, 1002},                 /* no mask */
        {"\x83\x80\0\0\0\0", 6, 1002},          /* an unknown opcode */
        {"\x80\x80\0\0\0\0", 6, 1002},          /* a continuation of nothing */
        {"\xc1\x81\0\0\0\0x", 7, 1002},         /* compressed, but that was not agreed on */
        {"\x81\x82\0\0\0\0\xc3\x28", 8, 1007},  /* no UTF-8 */
        {"\x09\x80\0\0\0\0", 6, 1002},          /* a part of a ping */
        {"\x89\xfe\0\x7e\0\0\0\0", 8, 1002},    /* a ping that is too long */
        {"\x81\xfe\0\x01\0\0\0\0x", 9, 1002},   /* a length that is not in the shortest form */
        {"\x82\xfe\x03\xe9\0\0\0\0x", 9, 1009}, /* 1001 bytes */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;

        begin(&f, NULL);
        cn_ws_frames_take(&f.frames, (struct cn_str){cases[i].bytes, cases[i].len});
        assert_int_equal(close_code(&f), cases[i].code);
        assert_true(f.frames.is_closing);
        assert_false(cn_ws_frames_wants_bytes(&f.frames));
        assert_int_equal(f.got.len, 0);
        end(&f);
    }
}

/* Fragments that are small one by one count together. */
static void
fragments_count_together(void **state)
{
    struct cn_buf bytes;
    struct fixture f;
    char part[101];

    (void)state;
    memset(part, 'x', sizeof(part));
    begin(&f, NULL);
    cn_buf_init(&bytes, 0);
    for (int i = 0; i < 10; i++)
        put(&bytes, i ? 0x00 : 0x02, part, sizeof(part));
    cn_ws_frames_take(&f.frames, cn_buf_str(&bytes));
    assert_int_equal(close_code(&f), 1009);
    assert_true(f.frames.message.len <= 1000);
    cn_buf_fini(&bytes);
    end(&f);
}

static void
a_pause_keeps_the_rest(void **state)
{
    struct cn_buf bytes;
    struct cn_str rest;
    struct fixture f;

    (void)state;
    begin(&f, NULL);
    f.pauses = true;
    cn_buf_init(&bytes, 0);
    for (int i = 0; i < 2000; i++)
        put(&bytes, 0x81, "1234567890", 10);
    rest = cn_ws_frames_take(&f.frames, cn_buf_str(&bytes));
    assert_true(rest.len > 0 && f.got.len < bytes.len / 2);
    while (rest.len)
        rest = cn_ws_frames_take(&f.frames, rest);
    assert_int_equal(f.got.len, 2000 * 12);
    assert_int_equal(f.frames.open_bytes, 0);
    cn_buf_fini(&bytes);
    end(&f);
}

/* An idle stream gives its buffers back, but not within a message or a frame's head. */
static void
rests_only_between_messages(void **state)
{
    struct cn_buf bytes;
    struct fixture f;

    (void)state;
    begin(&f, NULL);
    cn_buf_init(&bytes, 0);
    put(&bytes, 0x01, "he", 2);
    put(&bytes, 0x80, "llo", 3);
    for (size_t i = 0; i < bytes.len; i++) {
        cn_ws_frames_take(&f.frames, (struct cn_str){bytes.data + i, 1});
        cn_ws_frames_rest(&f.frames);
        assert_true((f.frames.wslay == NULL) == (i + 1 == bytes.len));
    }
    assert_true(cn_str_eq(cn_buf_str(&f.got), CN_STR("Thello|")));
    cn_ws_frames_send(&f.frames, true, CN_STR("again"));
    assert_int_equal(f.frames.out.len, 7);
    cn_buf_fini(&bytes);
    end(&f);
}

static void
compressed_messages(void **state)
{
    struct cn_ws_deflate *deflate = cn_ws_deflate_create();
    struct cn_buf bytes, message;
    struct fixture f;
    char long_text[4000];

    (void)state;
    memset(long_text, 'x', sizeof(long_text));
    for (unsigned bits = CN_WS_WINDOW_MIN; bits <= CN_WS_WINDOW_MAX; bits++) {
        begin(&f, deflate);
        cn_buf_init(&bytes, 0);
        cn_buf_init(&message, 0);
        assert_true(cn_ws_deflate(deflate, bits, (struct cn_str){long_text, 900}, &message));
        put(&bytes, 0xc1, message.data, message.len);
        cn_ws_frames_take(&f.frames, cn_buf_str(&bytes));
        assert_int_equal(f.got.len, 902);
        cn_buf_reset(&message);
        cn_buf_reset(&bytes);
        assert_true(cn_ws_deflate(deflate, bits, (struct cn_str){long_text, 4000}, &message));
        assert_true(message.len < 1000); /* only its contents are too large */
        put(&bytes, 0xc1, message.data, message.len);
        cn_ws_frames_take(&f.frames, cn_buf_str(&bytes));
        assert_int_equal(close_code(&f), 1009);
        cn_buf_fini(&bytes);
        cn_buf_fini(&message);
        end(&f);
    }
    begin(&f, deflate);
    cn_ws_frames_take(&f.frames, (struct cn_str){"\xc1\x83\0\0\0\0\xff\xff\xff", 9});
    assert_int_equal(close_code(&f), 1007);
    end(&f);
    cn_ws_deflate_destroy(deflate);
}

/* The head of a frame has the length in its shortest form, or clients refuse it. */
static void
messages_leave_as_one_frame(void **state)
{
    static const struct {
        size_t len, head_bytes;
        const char *head;
    } cases[] = {
        {0, 2, "\x82\x00"},
        {125, 2, "\x82\x7d"},
        {126, 4, "\x82\x7e\x00\x7e"},
        {65535, 4, "\x82\x7e\xff\xff"},
        {65536, 10, "\x82\x7f\0\0\0\0\x00\x01\0\0"},
    };
    char *message = malloc(65536);

    (void)state;
    memset(message, 'x', 65536);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t len = cases[i].len, head = cases[i].head_bytes;
        struct fixture f;

        begin(&f, NULL);
        cn_ws_frames_send(&f.frames, false, (struct cn_str){message, len});
        assert_int_equal(f.frames.out.len, head + len);
        assert_memory_equal(f.frames.out.data, cases[i].head, head);
        assert_memory_equal(f.frames.out.data + head, message, len);
        cn_ws_frames_send(&f.frames, true, CN_STR("t"));
        assert_int_equal(f.frames.out.len, head + len + 3);
        assert_memory_equal(f.frames.out.data + head + len, "\x81\x01t", 3);
        end(&f);
    }
    free(message);
}

static void
nothing_leaves_behind_a_close(void **state)
{
    struct fixture f;
    size_t len;

    (void)state;
    begin(&f, NULL);
    cn_ws_frames_send(&f.frames, true, CN_STR("last"));
    cn_ws_frames_close(&f.frames, CN_WS_CLOSE_NORMAL, CN_STR(""));
    len = f.frames.out.len;
    assert_memory_equal(f.frames.out.data, "\x81\x04last\x88", 7);
    cn_ws_frames_send(&f.frames, true, CN_STR("late"));
    assert_int_equal(f.frames.out.len, len);
    assert_false(f.frames.failed);
    end(&f);
}

/* Only messages that reach the limit are compressed. */
static void
long_messages_leave_compressed(void **state)
{
    struct cn_ws_deflate *deflate = cn_ws_deflate_create();
    char long_text[500];
    struct cn_buf back;
    struct fixture f;

    (void)state;
    memset(long_text, 'x', sizeof(long_text));
    cn_buf_init(&back, 0);
    begin(&f, deflate);
    f.frames.compress_bytes = sizeof(long_text);
    cn_ws_frames_send(&f.frames, true, (struct cn_str){long_text, sizeof(long_text) - 1});
    assert_int_equal(f.frames.out.len, 4 + sizeof(long_text) - 1);
    cn_buf_reset(&f.frames.out);
    cn_ws_frames_send(&f.frames, true, (struct cn_str){long_text, sizeof(long_text)});
    assert_true(f.frames.out.len < 126);
    assert_int_equal((unsigned char)f.frames.out.data[0], 0xc1);
    assert_int_equal(f.frames.out.data[1], f.frames.out.len - 2);
    assert_int_equal(cn_ws_inflate(deflate,
                                   (struct cn_str){f.frames.out.data + 2, f.frames.out.len - 2},
                                   1000, &back),
                     CN_WS_INFLATED);
    assert_true(cn_str_eq(cn_buf_str(&back), (struct cn_str){long_text, sizeof(long_text)}));
    cn_buf_fini(&back);
    end(&f);
    cn_ws_deflate_destroy(deflate);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_whole_however_they_are_cut),
        cmocka_unit_test(clients_that_break_the_protocol_are_closed),
        cmocka_unit_test(fragments_count_together),
        cmocka_unit_test(a_pause_keeps_the_rest),
        cmocka_unit_test(rests_only_between_messages),
        cmocka_unit_test(compressed_messages),
        cmocka_unit_test(messages_leave_as_one_frame),
        cmocka_unit_test(nothing_leaves_behind_a_close),
        cmocka_unit_test(long_messages_leave_compressed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
