/* core/time/clock_test.c - tests the real time, the frozen time, and time that is moved from
 * outside. */
#include "core/time/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *self;

static void
real_time_passes_forward(void **state)
{
    uint64_t us = cn_now_us(), ms = cn_now_ms(), wall = cn_wall_ms();

    (void)state;
    assert_false(cn_clock_is_test());
    assert_true(ms >= us / 1000 && ms - us / 1000 < 10000);
    assert_true(cn_now_us() >= us);
    assert_true(wall > UINT64_C(1600000000000));
}

/* CPU time shows how busy a process is: it cannot be more than the time that has passed. */
static void
cpu_time_is_that_of_work(void **state)
{
    uint64_t begun_us = cn_now_us(), cpu_us = cn_cpu_us();

    (void)state;
    while (cn_cpu_us() - cpu_us < 2000)
        ;
    assert_true(cn_now_us() - begun_us >= 1999);
}

/* This form of time is written to disk and shown to people. */
static void
wall_time_is_formatted_as_utc(void **state)
{
    char out[25];

    (void)state;
    cn_wall_format(UINT64_C(1795235792123), out);
    assert_string_equal(out, "2026-11-21T04:36:32.123Z");
    cn_wall_format(0, out);
    assert_string_equal(out, "1970-01-01T00:00:00.000Z");
    cn_wall_format(UINT64_MAX, out);
    assert_string_equal(out, "9999-12-31T23:59:59.999Z");
}

static void
frozen_time_moves_by_hand_only(void **state)
{
    (void)state;
    cn_clock_freeze();
    assert_true(cn_clock_is_test());
    assert_int_equal(cn_now_ms(), 1000000);
    assert_int_equal(cn_wall_ms(), UINT64_C(1700000000000));
    cn_clock_advance(3600000);
    assert_int_equal(cn_now_ms(), 4600000);
    assert_int_equal(cn_now_us(), UINT64_C(4600000000));
    assert_int_equal(cn_wall_ms(), UINT64_C(1700003600000));
    cn_clock_freeze();
    assert_int_equal(cn_now_ms(), 1000000);
}

/* Runs this program again with the clock file; its exit status says what it saw. */
static int
run_with_clock(const char *file, const char *mode)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        setenv("CONTINUO_TEST_CLOCK", file, 1);
        execl(self, self, mode, file, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Server and workers must see the same hour pass at once. */
static void
a_mapped_file_moves_the_clocks_of_all_processes(void **state)
{
    char file[] = "/tmp/continuo-clock-XXXXXX";
    int64_t ahead = 0;
    int fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &ahead, sizeof(ahead)), sizeof(ahead));
    assert_int_equal(run_with_clock(file, "child"), 0);
    assert_int_equal(ftruncate(fd, 3), 0);
    assert_int_not_equal(run_with_clock(file, "child"), 0);
    close(fd);
    unlink(file);
}

static int
child(const char *file)
{
    uint64_t before = cn_now_ms(), wall = cn_wall_ms(), passed;
    int64_t hour = 3600000;
    FILE *f = fopen(file, "r+");

    if (!cn_clock_is_test() || !f || fwrite(&hour, sizeof(hour), 1, f) != 1 || fclose(f) != 0)
        return 1;
    passed = cn_now_ms() - before;
    if (passed < 3600000 || passed > 3660000)
        return 2;
    passed = cn_wall_ms() - wall;
    return passed < 3590000 || passed > 3660000 ? 3 : 0;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_time_passes_forward),
        cmocka_unit_test(cpu_time_is_that_of_work),
        cmocka_unit_test(wall_time_is_formatted_as_utc),
        cmocka_unit_test(a_mapped_file_moves_the_clocks_of_all_processes),
        cmocka_unit_test(frozen_time_moves_by_hand_only),
    };

    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child(argv[2]);
    self = "/proc/self/exe";
    return cmocka_run_group_tests_name("core.clock", tests, NULL, NULL);
}
