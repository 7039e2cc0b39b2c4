/* core/log/log_files_test.c - log files: whole lines, rotation, reopening, and disks that take
 * nothing. */
#include "core/log/log_files.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"

static char folder[TEST_DIR_MAX], text[1 << 20];

static int
set_up(void **state)
{
    (void)state;
    test_dir_make(folder);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_log_files_stop();
    return test_dir_remove(folder);
}

static void
start(uint64_t file_bytes, uint32_t keep, uint64_t ring_bytes)
{
    const struct cn_log_options options = {
        .dir = folder, .file_bytes = file_bytes, .keep = keep, .ring_bytes = ring_bytes};
    struct cn_error err;

    if (cn_log_files_start(&options, &err))
        fail_msg("%s", err.message);
}

/* The file's bytes, in `text`; -1: there is no such file. */
static long
read_file(const char *name)
{
    char path[128];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    if (!file)
        return -1;
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);
    return (long)n;
}

static void
put(enum cn_log_file file, const char *line)
{
    cn_log_files_put(file, line, strlen(line));
}

/* Lines that were written before the end are in their file, in order. */
static void
each_line_comes_into_its_own_file(void **state)
{
    (void)state;
    start(0, 0, 4096);
    put(CN_LOG_ACCESS, "one\n");
    put(CN_LOG_METRICS, "m\n");
    put(CN_LOG_ACCESS, "two\n");
    cn_log(CN_LOG_ERROR, "event=both");
    cn_log_model(CN_LOG_ERROR, "event=worker_stderr line=x");
    cn_log_files_stop();
    assert_int_equal(read_file("access_log.log"), 8);
    assert_string_equal(text, "one\ntwo\n");
    assert_int_equal(read_file("ts_metrics.log"), 2);
    assert_int_equal(read_file("model_metrics.log"), 0);
    assert_true(read_file("ts_log.log") > 0);
    assert_non_null(strstr(text, "event=both\n"));
    assert_null(strstr(text, "worker_stderr"));
    assert_true(read_file("model_log.log") > 0);
    assert_non_null(strstr(text, "event=worker_stderr line=x\n"));
}

/* TorchServe's METRICS_LOCATION names a folder of its own. Folders are created together with their
 * parents. */
static void
metrics_may_have_a_folder_of_their_own(void **state)
{
    char logs[128], metrics[128];
    struct cn_log_options options = {.dir = logs, .metrics_dir = metrics, .ring_bytes = 4096};
    struct cn_error err;

    (void)state;
    snprintf(logs, sizeof(logs), "%s/a/b", folder);
    snprintf(metrics, sizeof(metrics), "%s/c", folder);
    assert_int_equal(cn_log_files_start(&options, &err), 0);
    put(CN_LOG_ACCESS, "one\n");
    put(CN_LOG_METRICS, "m\n");
    put(CN_LOG_MODEL_METRICS, "mm\n");
    cn_log_files_stop();
    assert_int_equal(read_file("a/b/access_log.log"), 4);
    assert_int_equal(read_file("c/ts_metrics.log"), 2);
    assert_int_equal(read_file("c/model_metrics.log"), 3);
    assert_int_equal(read_file("a/b/ts_metrics.log"), -1);
    options.dir = NULL;
    assert_int_equal(cn_log_files_start(&options, &err), CN_E_CONFIG);
    assert_string_equal(err.message, "metrics-log-dir needs log-dir");
}

/* Waits for a condition that the log thread brings about. */
static bool
comes(bool (*true_now)(void))
{
    for (int i = 0; i < 1000; i++) {
        if (true_now())
            return true;
        usleep(5000);
    }
    return false;
}

static bool
second_generation(void)
{
    return read_file("access_log.log.2") > 0;
}

/* There are never more old files than wanted, and rotation loses no line. */
static void
large_files_are_rotated(void **state)
{
    int lines = 0;

    (void)state;
    start(100, 2, 1 << 16);
    /* The log thread writes a batch into one file, so only its pauses lead to more files. */
    for (; !second_generation() && lines < 100000; lines++) {
        put(CN_LOG_ACCESS, "a line of twenty-four.\n");
        usleep(1000);
    }
    for (int i = 0; i < 50; i++) {
        put(CN_LOG_ACCESS, "a line of twenty-four.\n");
        usleep(1000);
    }
    cn_log_files_stop();
    assert_true(lines < 100000);
    assert_true(read_file("access_log.log") > 0);
    assert_true(read_file("access_log.log.1") > 0);
    assert_int_equal(read_file("access_log.log.3"), -1);
}

static bool
file_is_away(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/access_log.log", folder);
    return access(path, F_OK) != 0;
}

/* While the new file cannot be opened, here for want of a descriptor, the old one stays in use, and
 * the rotated ones stay where they are. */
static void
a_rotation_without_a_new_file_keeps_the_old_ones(void **state)
{
    struct rlimit usual, none;
    const char *at;

    (void)state;
    test_dir_write(folder, "access_log.log", "a line of twenty-four.\n");
    test_dir_write(folder, "access_log.log.1", "old 1\n");
    test_dir_write(folder, "access_log.log.2", "old 2\n");
    start(30, 4, 1 << 16);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    put(CN_LOG_ACCESS, "a line of twenty-four.\n");
    assert_true(comes(file_is_away));
    for (int i = 0; i < 20; i++) { /* each in a batch of its own */
        put(CN_LOG_ACCESS, "a line of twenty-four.\n");
        usleep(20000);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    put(CN_LOG_ACCESS, "the last line\n");
    cn_log_files_stop();
    assert_int_equal(read_file("access_log.log"), 14);
    assert_int_equal(read_file("access_log.log.1"), 22 * 23);
    read_file("access_log.log.2");
    assert_string_equal(text, "old 1\n");
    read_file("access_log.log.3");
    assert_string_equal(text, "old 2\n");
    assert_int_equal(read_file("access_log.log.4"), -1);
    read_file("ts_log.log.1");
    assert_non_null(at = strstr(text, "event=log_failing log=access")); /* is said once */
    assert_null(strstr(at + 1, "event=log_failing log=access"));
}

static bool
moved_file_is_back(void)
{
    return read_file("access_log.log") >= 0;
}

/* logrotate first moves the file and then sends SIGHUP. */
static void
a_moved_file_is_opened_again(void **state)
{
    char from[128], to[128];

    (void)state;
    start(0, 0, 4096);
    put(CN_LOG_ACCESS, "before\n");
    snprintf(from, sizeof(from), "%s/access_log.log", folder);
    snprintf(to, sizeof(to), "%s/old", folder);
    assert_int_equal(rename(from, to), 0);
    cn_log_files_reopen();
    assert_true(comes(moved_file_is_back));
    put(CN_LOG_ACCESS, "after\n");
    cn_log_files_stop();
    read_file("access_log.log");
    assert_non_null(strstr(text, "after\n"));
    read_file("old");
    assert_null(strstr(text, "after\n"));
}

/* Lines that are too long are dropped one by one and counted. The ring goes round its end many
 * times. */
static void
lines_without_room_are_dropped_and_counted(void **state)
{
    uint64_t before = cn_log_files_dropped(CN_LOG_ACCESS), lost;
    char line[1001];
    struct stat about;
    char path[128];
    int i;

    (void)state;
    start(0, 0, 4096);
    memset(line, 'x', 999);
    line[999] = '\n';
    line[1000] = '\0';
    for (i = 0; i < 2000; i++)
        put(CN_LOG_ACCESS, line);
    cn_log_files_stop();
    lost = cn_log_files_dropped(CN_LOG_ACCESS) - before;
    assert_true(lost > 0 && lost < 2000);
    snprintf(path, sizeof(path), "%s/access_log.log", folder);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, (long)(2000 - lost) * 1000);
}

/* /dev/full accepts nothing, like a full disk. Nobody waits, and lines are written again when there
 * is room. */
static void
a_full_disk_costs_lines_only(void **state)
{
    uint64_t before = cn_log_files_dropped(CN_LOG_MODEL_METRICS);
    char path[128];
    int i;

    (void)state;
    snprintf(path, sizeof(path), "%s/model_metrics.log", folder);
    assert_int_equal(symlink("/dev/full", path), 0);
    start(0, 0, 4096);
    put(CN_LOG_MODEL_METRICS, "lost\n");
    for (i = 0; i < 1000 && cn_log_files_dropped(CN_LOG_MODEL_METRICS) == before; i++)
        usleep(5000);
    assert_int_equal(cn_log_files_dropped(CN_LOG_MODEL_METRICS), before + 1);
    assert_int_equal(unlink(path), 0);
    cn_log_files_reopen();
    for (i = 0; i < 1000 && read_file("model_metrics.log") < 0; i++)
        usleep(5000);
    put(CN_LOG_MODEL_METRICS, "kept\n");
    cn_log_files_stop();
    read_file("model_metrics.log");
    assert_string_equal(text, "kept\n");
}

static void *
put_many(void *ctx)
{
    char line[32];
    int i;

    cn_log_files_join();
    for (i = 0; i < 5000; i++) {
        snprintf(line, sizeof(line), "%s %d\n", (const char *)ctx, i);
        put(CN_LOG_METRICS, line);
    }
    return NULL;
}

/* Two loops write at once: each one's lines are whole and in order. */
static void
threads_do_not_tear_each_others_lines(void **state)
{
    pthread_t threads[2];
    char name;
    int next[2] = {0, 0}, i, number;
    char *at;

    (void)state;
    start(0, 0, 1 << 20);
    assert_int_equal(pthread_create(&threads[0], NULL, put_many, (void *)(uintptr_t) "a"), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, put_many, (void *)(uintptr_t) "b"), 0);
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cn_log_files_stop();
    read_file("ts_metrics.log");
    for (at = text; *at; at = strchr(at, '\n') + 1) {
        assert_int_equal(sscanf(at, "%c %d\n", &name, &number), 2);
        assert_true(name == 'a' || name == 'b');
        assert_int_equal(number, next[name - 'a']++);
    }
    assert_int_equal(next[0], 5000);
    assert_int_equal(next[1], 5000);
}

static void
a_folder_that_cannot_be_made_is_an_error(void **state)
{
    const struct cn_log_options options = {.dir = "/dev/null/logs", .ring_bytes = 4096};
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_log_files_start(&options, &err), CN_E_IO);
    assert_non_null(strstr(err.message, "/dev/null/logs"));
    assert_non_null(strstr(err.message, "log-dir"));
}

static void
members(const char *line, const char *json)
{
    char out[256];
    unsigned long len = cn_log_json_members(line, out, sizeof(out));

    out[len] = '\0';
    assert_string_equal(out, json);
}

/* Whatever a handler printed, the line is valid JSON. */
static void
a_line_becomes_members_of_an_object(void **state)
{
    char out[16];

    (void)state;
    members("event=x worker=2 load=1.5 pid=-3",
            "\"event\":\"x\",\"worker\":2,\"load\":1.5,\"pid\":-3");
    members("model=7 version=1.10 from=1.0 to=2",
            "\"model\":\"7\",\"version\":\"1.10\",\"from\":\"1.0\",\"to\":\"2\"");
    members("version=1.0.0 id=007 n=12345678901234567890 e=1.",
            "\"version\":\"1.0.0\",\"id\":\"007\",\"n\":\"12345678901234567890\",\"e\":\"1.\"");
    members("line=\"a \\\"b\\\" \\n\\x01\\x7f\" more=y",
            "\"line\":\"a \\\"b\\\" \\n\\u0001\\u007f\",\"more\":\"y\"");
    members("why=\"\xc3\xa9 \xff \xc0\x80\"", "\"why\":\"\xc3\xa9 \\u00ff \\u00c0\\u0080\"");
    members("plain", "\"text\":\"plain\"");
    members("a= b=\"open", "\"a\":\"\",\"b\":\"open\"");
    members("cut=\"a \\x", "\"cut\":\"a \\\\x\"");
    members("cut=\"a \\x0", "\"cut\":\"a \\\\x0\"");
    members("q=\"\\q\\", "\"q\":\"\\\\q\\\\\"");
    members("", "");
    assert_int_equal(cn_log_json_members("a=1 bb=\"a long one\"", out, sizeof(out)), 5);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_line_comes_into_its_own_file),
        CASE(metrics_may_have_a_folder_of_their_own),
        CASE(large_files_are_rotated),
        CASE(a_rotation_without_a_new_file_keeps_the_old_ones),
        CASE(a_moved_file_is_opened_again),
        CASE(lines_without_room_are_dropped_and_counted),
        CASE(a_full_disk_costs_lines_only),
        CASE(threads_do_not_tear_each_others_lines),
        CASE(a_folder_that_cannot_be_made_is_an_error),
        CASE(a_line_becomes_members_of_an_object),
    };

    return cmocka_run_group_tests_name("core.log_files", tests, NULL, NULL);
}
