/* core/errors/panic_test.c - what a failed check leaves behind. */
#include "core/errors/panic.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct thing {
    uint32_t magic;
};

static void
fail_assert(void)
{
    cn_assert(1 + 1 == 3);
}

static void
fail_cast(void)
{
    struct thing thing = {.magic = 2};

    (void)cn_cast(struct thing, &thing, 1u);
}

static void
fail_long(void)
{
    char text[3000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cn_panic("file.c", 7, "%s", text);
}

/* Runs `fn` in a child and returns its wait status; what it wrote to stderr goes to `out`. */
static int
run(void (*fn)(void), char *out, size_t out_bytes)
{
    int fds[2], status;
    ssize_t n, at = 0;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fds[1]);
    while ((n = read(fds[0], out + at, out_bytes - 1 - (size_t)at)) > 0)
        at += n;
    out[at] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* A process that must not go on leaves a core file and a line that names the place. */
static void
failed_check_names_its_place_and_aborts(void **state)
{
    char out[4096];
    int status = run(fail_assert, out, sizeof(out));

    (void)state;
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(out, "core/errors/panic_test.c:"));
    assert_non_null(strstr(out, "assertion failed: 1 + 1 == 3\n"));
}

/* A pointer that comes back from a library as something else must stop us. */
static void
cast_checks_the_magic(void **state)
{
    struct thing thing = {.magic = 1};
    char out[4096];
    int status = run(fail_cast, out, sizeof(out));

    (void)state;
    assert_ptr_equal(cn_cast(struct thing, &thing, 1u), &thing);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* The supervisor shows the last lines of a worker; they must stay lines. */
static void
long_text_is_cut_and_still_ends_the_line(void **state)
{
    char out[4096];

    (void)state;
    run(fail_long, out, sizeof(out));
    assert_true(strlen(out) < 1025);
    assert_int_equal(out[strlen(out) - 1], '\n');
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_check_names_its_place_and_aborts),
        cmocka_unit_test(cast_checks_the_magic),
        cmocka_unit_test(long_text_is_cut_and_still_ends_the_line),
    };

    return cmocka_run_group_tests_name("core.panic", tests, NULL, NULL);
}
