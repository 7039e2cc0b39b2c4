/* worker/process/confine_test.c - tests that a worker ends with its server, whenever that ends. */
#include "worker/process/confine.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BEGUN = -1, ALIVE = -2 }; /* the call returned 0 */

struct ends {
    int go[2];   /* a byte: the worker comes to its call */
    int told[2]; /* BEGUN, and what it got: ALIVE, or errno */
};

static void
tell(const struct ends *ends, int what)
{
    if (write(ends->told[1], &what, sizeof(what)) != sizeof(what))
        _exit(1);
}

static int
hear(const struct ends *ends)
{
    int what = 0;

    assert_int_equal(read(ends->told[0], &what, sizeof(what)), sizeof(what));
    return what;
}

/* Waits for the byte, makes the call, tells the result, and lives until the next byte. */
static void
be_the_worker(const struct ends *ends, int fd)
{
    char byte;

    tell(ends, BEGUN);
    if (read(ends->go[0], &byte, 1) != 1)
        _exit(1);
    tell(ends, cn_worker_end_with_server(fd) == 0 ? ALIVE : errno);
    _exit(read(ends->go[0], &byte, 1) == 1 ? 0 : 1);
}

/* Makes the socket pair and its worker, as a child or, with a program between them, as a
 * grandchild. Then waits to be killed. */
static void
be_the_server(const struct ends *ends, bool between)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        _exit(1);
    if (fork() == 0) {
        close(pair[0]);
        if (!between || fork() == 0)
            be_the_worker(ends, pair[1]);
        pause();
        _exit(0);
    }
    close(pair[1]);
    for (;;)
        pause();
}

static pid_t
start(struct ends *ends, bool between)
{
    pid_t server;

    assert_int_equal(pipe(ends->go), 0);
    assert_int_equal(pipe(ends->told), 0);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        setpgid(0, 0); /* so that the test can end all that it has started */
        close(ends->go[1]);
        close(ends->told[0]);
        be_the_server(ends, between);
    }
    setpgid(server, server);
    close(ends->go[0]);
    close(ends->told[1]);
    assert_int_equal(hear(ends), BEGUN);
    return server;
}

static int
call(const struct ends *ends)
{
    assert_int_equal(write(ends->go[1], "g", 1), 1);
    return hear(ends);
}

static void
end_all(struct ends *ends, pid_t server)
{
    kill(-server, SIGKILL);
    close(ends->go[1]);
    close(ends->told[0]);
}

/* The worker comes to its call after the kernel has forgotten who its server was. */
static void
a_worker_notices_that_its_server_ended_before_it_began(void **state)
{
    struct ends ends;
    pid_t server = start(&ends, false);

    (void)state;
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    assert_int_equal(call(&ends), ESRCH);
    end_all(&ends, server);
}

static void
a_worker_is_killed_when_its_server_ends_later(void **state)
{
    struct ends ends;
    pid_t server = start(&ends, false);
    char byte;

    (void)state;
    assert_int_equal(call(&ends), ALIVE);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    assert_int_equal(read(ends.told[0], &byte, 1), 0); /* all writers have ended */
    end_all(&ends, server);
}

static void
a_worker_with_a_program_between_it_and_the_server_runs(void **state)
{
    struct ends ends;
    pid_t server = start(&ends, true);

    (void)state;
    assert_int_equal(call(&ends), ALIVE);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    end_all(&ends, server);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_notices_that_its_server_ended_before_it_began),
        cmocka_unit_test(a_worker_is_killed_when_its_server_ends_later),
        cmocka_unit_test(a_worker_with_a_program_between_it_and_the_server_runs),
    };

    return cmocka_run_group_tests_name("worker.confine", tests, NULL, NULL);
}
