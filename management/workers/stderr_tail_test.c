/* management/workers/stderr_tail_test.c - tests how a worker's stderr becomes log lines. */
#include "management/workers/stderr_tail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char seen[8192];

static void
see(void *ctx, const char *line)
{
    size_t used = strlen(seen);

    (void)ctx;
    snprintf(seen + used, sizeof seen - used, "%s/", line);
}

static void
add(struct cn_stderr_tail *tail, const char *text)
{
    cn_stderr_tail_add(tail, text, strlen(text), see, NULL);
}

/* A pipe delivers pieces, and the log wants lines. */
static void
lines_are_put_together_from_pieces(void **state)
{
    struct cn_stderr_tail tail;

    (void)state;
    seen[0] = '\0';
    cn_stderr_tail_init(&tail);
    add(&tail, "he");
    add(&tail, "llo\nwor");
    add(&tail, "ld\r\n\n\nlast");
    assert_string_equal(seen, "hello/world/");
    assert_string_equal(cn_stderr_tail_last(&tail), "world");
    cn_stderr_tail_end(&tail, see, NULL);
    assert_string_equal(cn_stderr_tail_last(&tail), "last");
    cn_stderr_tail_fini(&tail);
}

/* A handler that prints without end must not use up the server's memory. */
static void
only_the_newest_lines_are_kept(void **state)
{
    struct cn_stderr_tail tail;
    char line[64], joined[256];
    int i;

    (void)state;
    cn_stderr_tail_init(&tail);
    for (i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "line %d\n", i);
        add(&tail, line);
    }
    assert_string_equal(cn_stderr_tail_join(&tail, 3, joined, sizeof joined),
                        "line 997 | line 998 | line 999");
    assert_true(tail.bytes <= CN_TAIL_BYTES);
    cn_stderr_tail_fini(&tail);
}

/* A line without an end is bounded, too, and nothing of it is lost for the log. */
static void
a_line_without_end_is_cut(void **state)
{
    struct cn_stderr_tail tail;
    static char big[4 * CN_TAIL_LINE_BYTES];

    (void)state;
    cn_stderr_tail_init(&tail);
    memset(big, 'x', sizeof big);
    seen[0] = '\0';
    cn_stderr_tail_add(&tail, big, 3 * CN_TAIL_LINE_BYTES, see, NULL);
    assert_int_equal(strlen(cn_stderr_tail_last(&tail)), CN_TAIL_LINE_BYTES);
    cn_stderr_tail_add(&tail, big, sizeof big, see, NULL);
    assert_true(tail.bytes <= CN_TAIL_BYTES);
    cn_stderr_tail_fini(&tail);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_put_together_from_pieces),
        cmocka_unit_test(only_the_newest_lines_are_kept),
        cmocka_unit_test(a_line_without_end_is_cut),
    };

    return cmocka_run_group_tests_name("management.stderr_tail", tests, NULL, NULL);
}
