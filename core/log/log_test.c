/* core/log/log_test.c - the lines people and tests read. */
#include "core/log/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/text/utf8.h"
#include "core/time/clock.h"

static char written[16384];

/* Logs one line and leaves what went to stderr in `written`. */
static void
capture(enum cn_log_level level, const char *text)
{
    int fds[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    assert_int_equal(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    cn_log(level, "event=test text=%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    n = read(fds[0], written, sizeof(written) - 1);
    close(fds[0]);
    written[n > 0 ? n : 0] = '\0';
}

static void
a_line_has_time_level_and_program(void **state)
{
    (void)state;
    cn_clock_freeze();
    cn_log_set_program("worker");
    capture(CN_LOG_WARN, "x");
    assert_string_equal(written, "2023-11-14T22:13:20.000Z warn worker event=test text=x\n");
}

static void
levels_above_the_chosen_one_are_silent(void **state)
{
    (void)state;
    cn_log_set_level(CN_LOG_WARN);
    assert_false(cn_log_enabled(CN_LOG_INFO));
    capture(CN_LOG_INFO, "x");
    assert_string_equal(written, "");
    capture(CN_LOG_ERROR, "x");
    assert_non_null(strstr(written, " error "));
    cn_log_set_level(CN_LOG_INFO);
}

/* A line stays one line, and one write, however long its text is. */
static void
long_lines_are_cut(void **state)
{
    static char text[9000];

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    capture(CN_LOG_INFO, text);
    assert_int_equal(strlen(written), 4096);
    assert_int_equal(written[4095], '\n');
}

/* A log that is not UTF-8 cannot be read as text. */
static void
long_lines_are_cut_between_characters(void **state)
{
    static char text[9000];

    (void)state;
    for (int shift = 0; shift < 3; shift++) {
        memset(text, 'a', (size_t)shift);
        for (size_t i = (size_t)shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        capture(CN_LOG_INFO, text);
        assert_in_range(strlen(written), 4094, 4096);
        assert_true(cn_utf8_is_valid(cn_str_from(written)));
        assert_int_equal(written[strlen(written) - 1], '\n');
    }
}

/* A handler's text must not be able to forge a log line. */
static void
quote_escapes_what_could_end_the_value(void **state)
{
    char out[64];

    (void)state;
    assert_string_equal(cn_log_quote("a \"b\"\n\\\t\x01\x7f", 10, out, sizeof(out)),
                        "\"a \\\"b\\\"\\n\\\\\\t\\x01\\x7f\"");
    assert_string_equal(cn_log_quote("\0x", 2, out, sizeof(out)), "\"\\x00x\"");
    assert_string_equal(cn_log_quote(NULL, 0, out, sizeof(out)), "\"\"");
}

/* A client may put any byte into a URL. A log that is not UTF-8 could not be read as text. */
static void
quoted_text_is_utf8(void **state)
{
    char out[64], small[7];

    (void)state;
    assert_string_equal(cn_log_quote("\xc3\xa9\xe2\x82\xac", 5, out, sizeof(out)),
                        "\"\xc3\xa9\xe2\x82\xac\"");
    assert_string_equal(cn_log_quote("a\xe9/\xff\xc3", 5, out, sizeof(out)),
                        "\"a\\xe9/\\xff\\xc3\"");
    assert_string_equal(cn_log_quote("\xc2\x9b"
                                     "1m",
                                     4, out, sizeof(out)),
                        "\"\\xc2\\x9b1m\"");
    assert_string_equal(cn_log_quote("abc\xe2\x82\xac", 6, small, sizeof(small)), "\"abc\"");
}

static void
quote_cuts_to_the_space_there_is(void **state)
{
    char out[8];
    unsigned long room;

    (void)state;
    assert_string_equal(cn_log_quote("abcdefghij", 10, out, sizeof(out)), "\"abcde\"");
    assert_string_equal(cn_log_quote("abcd\n", 5, out, sizeof(out)), "\"abcd\"");
    for (room = 0; room < sizeof(out); room++) {
        memset(out, 'z', sizeof(out));
        cn_log_quote("\n\n\n\n", 4, out, room);
        assert_int_equal(out[room], 'z');
    }
}

/* People read a traceback line by line, and nothing in it can look like the next event. */
static void
a_traceback_has_lines_of_its_own(void **state)
{
    (void)state;
    cn_clock_freeze();
    capture(CN_LOG_WARN,
            "\"a traceback=\\\"b\\\"\" traceback=\"x.lua:1: in f\\n\\tx.lua:2\\n\\n\\x1b[0mz\"");
    assert_string_equal(
        written, "2023-11-14T22:13:20.000Z warn worker event=test text=\"a traceback=\\\"b\\\"\"\n"
                 "    x.lua:1: in f\n    x.lua:2\n    \n    ?[0mz\n");
    cn_log_set_one_line(true);
    capture(CN_LOG_WARN, "x traceback=\"a\\nb\"");
    cn_log_set_one_line(false);
    assert_non_null(strstr(written, "text=x traceback=\"a\\nb\"\n"));
    cn_log_set_json(true);
    capture(CN_LOG_WARN, "x traceback=\"a\\n\\tb\"");
    cn_log_set_json(false);
    assert_non_null(strstr(written, "\"text\":\"x\",\"traceback\":\"a\\n\\tb\"}\n"));
}

/* However long it is, an event ends with a line end, and shows whole lines of its traceback. */
static void
a_long_traceback_is_cut_at_a_line(void **state)
{
    char text[3900];
    unsigned i;

    (void)state;
    strcpy(text, "x traceback=\"");
    for (i = (unsigned)strlen(text); i + 10 < sizeof(text); i += 6)
        memcpy(text + i, "line\\n", 7);
    strcpy(text + i, "\"");
    capture(CN_LOG_WARN, text);
    assert_true(strlen(written) <= 4096);
    assert_string_equal(written + strlen(written) - 10, "\n    line\n");
}

static void
what_was_quoted_comes_back(void **state)
{
    static const char text[] = "a \"b\"\n\\\t\r\x01\x7f";
    char quoted[64], out[64], small[4];

    (void)state;
    cn_log_quote(text, sizeof(text) - 1, quoted, sizeof(quoted));
    assert_int_equal(cn_log_unquote(quoted + 1, out, sizeof(out)), sizeof(text) - 1);
    assert_string_equal(out, text);
    assert_int_equal(cn_log_unquote("abcdef\"", small, sizeof(small)), 3);
    assert_string_equal(small, "abc");
    assert_int_equal(cn_log_unquote("a\\", out, sizeof(out)), 2);
    assert_string_equal(out, "a\\");
    assert_int_equal(cn_log_unquote("\\x4", out, sizeof(out)), 2);
}

static void
level_words_are_known(void **state)
{
    (void)state;
    assert_int_equal(cn_log_level_parse("error"), CN_LOG_ERROR);
    assert_int_equal(cn_log_level_parse("debug"), CN_LOG_DEBUG);
    assert_int_equal(cn_log_level_parse("loud"), -1);
    assert_int_equal(cn_log_level_parse(NULL), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_and_program),
        cmocka_unit_test(levels_above_the_chosen_one_are_silent),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(long_lines_are_cut_between_characters),
        cmocka_unit_test(quote_escapes_what_could_end_the_value),
        cmocka_unit_test(quoted_text_is_utf8),
        cmocka_unit_test(quote_cuts_to_the_space_there_is),
        cmocka_unit_test(a_traceback_has_lines_of_its_own),
        cmocka_unit_test(a_long_traceback_is_cut_at_a_line),
        cmocka_unit_test(what_was_quoted_comes_back),
        cmocka_unit_test(level_words_are_known),
    };

    return cmocka_run_group_tests_name("core.log", tests, NULL, NULL);
}
