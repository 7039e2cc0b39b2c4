/* management/workers/spawn_test.c - tests which variables of the environment a worker gets. */
#include "management/workers/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Counts the entry in a worker's environment, if the server's environment is `ours`. */
static int
times_seen(char **ours, const char *entry, bool installs)
{
    char **before = environ, **theirs;
    int seen = 0;

    environ = ours;
    theirs = cn_spawn_environment(installs);
    environ = before;
    for (size_t i = 0; theirs[i]; i++)
        seen += strcmp(theirs[i], entry) == 0;
    cn_spawn_environment_free(theirs);
    return seen;
}

/* Handlers are the code of others, who must not read what the server knows. */
static void
secrets_stay_with_the_server(void **state)
{
    char *ours[] = {(char *)"PATH=/bin", (char *)"AWS_SECRET_ACCESS_KEY=s",
                    (char *)"LC_ALL=C",  (char *)"CONTINUO_MANAGEMENT_TOKEN=t",
                    (char *)"PATHS=no",  NULL};

    (void)state;
    assert_int_equal(times_seen(ours, "PATH=/bin", false), 1);
    assert_int_equal(times_seen(ours, "LC_ALL=C", false), 1);
    assert_int_equal(times_seen(ours, "AWS_SECRET_ACCESS_KEY=s", false), 0);
    assert_int_equal(times_seen(ours, "CONTINUO_MANAGEMENT_TOKEN=t", false), 0);
    assert_int_equal(times_seen(ours, "PATHS=no", false), 0);
    assert_int_equal(times_seen(NULL, "PATH=/bin", false), 0);
}

/* An installer needs to know from where packages come; the server's secrets are not for it. */
static void
installers_see_what_pip_needs(void **state)
{
    char *ours[] = {(char *)"PIP_INDEX_URL=u", (char *)"https_proxy=p",
                    (char *)"AWS_SECRET_ACCESS_KEY=s", NULL};

    (void)state;
    assert_int_equal(times_seen(ours, "PIP_INDEX_URL=u", true), 1);
    assert_int_equal(times_seen(ours, "https_proxy=p", true), 1);
    assert_int_equal(times_seen(ours, "AWS_SECRET_ACCESS_KEY=s", true), 0);
    assert_int_equal(times_seen(ours, "PIP_INDEX_URL=u", false), 0);
}

/* A zygote must not give the process of another worker out as one that it has forked. */
static void
a_process_is_watched_until_it_is_reaped(void **state)
{
    struct cn_spawned ours = {.pid_fd = -1, .socket_fd = -1, .stderr_fd = -1};
    struct cn_exit end;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(pause());
    assert_true(pid > 0);
    assert_false(cn_spawn_is_watched(pid));
    assert_int_equal(cn_spawn_adopt(&ours, pid, NULL), 0);
    assert_true(cn_spawn_is_watched(pid));
    assert_false(cn_spawn_reap(ours.pid_fd, &end));
    assert_true(cn_spawn_is_watched(pid));
    cn_spawn_kill(ours.pid_fd);
    cn_spawn_wait(ours.pid_fd);
    assert_false(cn_spawn_is_watched(pid));
    cn_spawn_close(&ours);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_stay_with_the_server),
        cmocka_unit_test(installers_see_what_pip_needs),
        cmocka_unit_test(a_process_is_watched_until_it_is_reaped),
    };

    return cmocka_run_group_tests_name("management.spawn", tests, NULL, NULL);
}
