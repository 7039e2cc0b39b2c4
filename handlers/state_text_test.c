/* handlers/state_text_test.c - tests how stored states are shown whose form is odd. */
#include "handlers/state_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
assert_shown(const char *bytes, size_t len, const char *wanted)
{
    struct cn_buf out;

    cn_buf_init(&out, 0);
    cn_state_text("lua", (struct cn_str){bytes, len}, &out);
    assert_int_equal(out.len, strlen(wanted));
    assert_memory_equal(out.data, wanted, out.len);
    cn_buf_fini(&out);
}

/* A key that is a number or a map becomes the text of its JSON. */
static void
keys_become_texts(void **state)
{
    (void)state;
    assert_shown("\x82\x05\x01\x81\xa1g\x02\x03", 8, "{\"5\":1,\"{\\\"g\\\":2}\":3}");
}

/* Maps that are keys of maps: each level would double the backslashes of the one below. The text
 * stays as small as the state is. */
static void
nested_keys_do_not_grow(void **state)
{
    enum { DEPTH = 40 };
    char bytes[2 * DEPTH + 1];
    struct cn_buf out;

    (void)state;
    memset(bytes, '\x81', DEPTH);             /* maps with one member, whose key is the next map */
    bytes[DEPTH] = '\x01';                    /* the innermost key */
    memset(bytes + DEPTH + 1, '\x02', DEPTH); /* the values, from the inside out */
    cn_buf_init(&out, 0);
    cn_state_text("lua", (struct cn_str){bytes, sizeof(bytes)}, &out);
    assert_true(out.len > 0 && out.len < 1000);
    assert_non_null(memmem(out.data, out.len, " bytes, member 1)\":2}", 20));
    cn_buf_fini(&out);
}

/* Keys that begin alike and are cut stay two keys. */
static void
cut_keys_stay_apart(void **state)
{
    char bytes[1 + 2 * 304];
    struct cn_buf out;

    (void)state;
    bytes[0] = '\x82';
    for (int i = 0; i < 2; i++) {
        char *key = bytes + 1 + i * 304;

        memcpy(key, "\xdc\x01\x2c", 3); /* an array of 300 numbers */
        memset(key + 3, 7, 300);
        key[302] = (char)i;
        key[303] = (char)(40 + i);
    }
    cn_buf_init(&out, 0);
    cn_state_text("lua", (struct cn_str){bytes, sizeof(bytes)}, &out);
    assert_non_null(memmem(out.data, out.len, "member 1)\":40", 13));
    assert_non_null(memmem(out.data, out.len, "member 2)\":41", 13));
    cn_buf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_become_texts),
        cmocka_unit_test(nested_keys_do_not_grow),
        cmocka_unit_test(cut_keys_stay_apart),
    };

    return cmocka_run_group_tests_name("handlers.state_text", tests, NULL, NULL);
}
