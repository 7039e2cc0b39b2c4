/* worker/process/walls_test.c - tests what a process behind the walls can no longer do. Each test
 * raises them in a child, because walls cannot be taken down again. */
#include "worker/process/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A line number tells which condition of a child was false. */
#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

/* Runs `check` in a child. It returns 0, or the number of the line that failed. */
static void
in_a_child(int (*check)(void))
{
    int told[2], line = -1, status;
    pid_t child;

    assert_int_equal(pipe(told), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        line = check();
        _exit(write(told[1], &line, sizeof(line)) == sizeof(line) ? 0 : 1);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &line, sizeof(line)), sizeof(line));
    close(told[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (line != 0)
        fail_msg("the condition of line %d is false", line);
}

static int
raise_walls(uint64_t mode, struct cn_walls *walls)
{
    const struct cn_load load = {.model_name = "m", .walls = mode};

    return cn_walls_raise(&load, walls, NULL);
}

static int
check_that_off_builds_nothing(void)
{
    struct cn_walls walls;

    WANT(raise_walls(CN_WALLS_OFF, &walls) == 0);
    WANT(!walls.standing[0] && !walls.lacking[0]);
    WANT(prctl(PR_GET_DUMPABLE) == 1);
    WANT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    return 0;
}

static int
check_that_on_takes_all_rights(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3];
    struct cn_walls walls;

    WANT(raise_walls(CN_WALLS_ON, &walls) == 0);
    WANT(strstr(walls.standing, "not_dumpable no_new_privs no_capabilities") == walls.standing);
    WANT(prctl(PR_GET_DUMPABLE) == 0);
    WANT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    WANT(syscall(SYS_capget, &head, held) == 0);
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        WANT((held[i].effective | held[i].permitted | held[i].inheritable) == 0);
    WANT(geteuid() != 0 || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN) == 0);
    return 0;
}

/* A file that its owner may not read. Root reads it by a capability only. */
static int
check_that_root_keeps_only_its_files(void)
{
    char path[] = "/tmp/continuo-walls-XXXXXX";
    int fd = mkstemp(path), opened, failed;
    struct cn_walls walls;

    WANT(fd >= 0 && fchmod(fd, 0) == 0 && close(fd) == 0);
    WANT(raise_walls(CN_WALLS_ON, &walls) == 0);
    opened = open(path, O_RDONLY);
    failed = errno;
    unlink(path);
    WANT(opened < 0 && failed == EACCES);
    WANT(chroot("/") < 0 && errno == EPERM);
    return 0;
}

/* What is open already stays usable, and so do programs of the system. */
static int
check_that_files_are_its_own(void)
{
    char temp[] = "/tmp/continuo-own-XXXXXX", other[] = "/tmp/continuo-other-XXXXXX", path[100];
    const int foreign = mkstemp(other);
    struct cn_load load = {.model_name = "m", .walls = CN_WALLS_ON};
    struct cn_walls walls;
    bool stands;
    int fd;

    WANT(foreign >= 0 && mkdtemp(temp));
    load.temp_dir = temp;
    load.model_dir = temp;
    WANT(cn_walls_raise(&load, &walls, NULL) == 0);
    stands = strstr(walls.standing, "own_files");
    WANT(stands == (strstr(walls.lacking, "own_files: ") == NULL));
    if (stands) {
        WANT(open(other, O_RDONLY) < 0 && errno == EACCES);
        WANT(unlink(other) < 0 && errno == EACCES);
        WANT(open("/etc/shadow", O_RDONLY) < 0 && errno == EACCES);
        WANT(open("/proc/sys/kernel/core_pattern", O_WRONLY) < 0 && errno == EACCES);
    }
    snprintf(path, sizeof(path), "%s/mine", temp);
    WANT((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0 && close(fd) == 0 && unlink(path) == 0);
    WANT(write(foreign, "x", 1) == 1);
    /* as CUDA's driver names a thread */
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", getpid());
    WANT((fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)) >= 0);
    WANT(write(fd, "named", 5) == 5 && close(fd) == 0);
    if (stands) {
        snprintf(path, sizeof(path), "/proc/self/task/%d/fd/%d", getpid(), foreign);
        WANT(open(path, O_WRONLY) < 0 && errno == EACCES);
        snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", getppid(), getppid());
        WANT(open(path, O_WRONLY) < 0 && errno == EACCES);
    }
    WANT(open("/usr/bin/env", O_RDONLY) >= 0 && open("/dev/null", O_WRONLY) >= 0);
    return 0;
}

/* Each wall either stands, or it is said why not. */
static int
check_that_others_are_out_of_reach(void)
{
    struct cn_walls walls;

    WANT(raise_walls(CN_WALLS_ON, &walls) == 0);
    WANT((strstr(walls.standing, "no_signals") != NULL) ==
         (strstr(walls.lacking, "no_signals: ") == NULL));
    WANT((strstr(walls.standing, "seccomp no_network") != NULL) ==
         (strstr(walls.lacking, "seccomp: ") == NULL));
    if (strstr(walls.standing, "no_signals"))
        WANT(kill(getppid(), 0) < 0 && errno == EPERM);
    WANT(kill(getpid(), 0) == 0);
    if (strstr(walls.standing, "seccomp"))
        WANT(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    return 0;
}

static int
check_that_a_network_can_be_given(void)
{
    const struct cn_load own = {.model_name = "m", .walls = CN_WALLS_ON, .network = 1};
    struct cn_walls walls;

    WANT(cn_walls_raise(&own, &walls, NULL) == 0);
    WANT(!strstr(walls.standing, "no_network"));
    WANT(socket(AF_INET, SOCK_STREAM, 0) >= 0);
    return 0;
}

/* The worker itself connects to a shared store. */
static int
check_that_a_shared_store_needs_the_network(void)
{
    const struct cn_load shared = {
        .model_name = "m", .walls = CN_WALLS_ON, .state_store = "valkey://s"};
    struct cn_walls walls;

    WANT(cn_walls_raise(&shared, &walls, NULL) == 0);
    WANT(!strstr(walls.standing, "no_network"));
    WANT(socket(AF_INET, SOCK_STREAM, 0) >= 0);
    return 0;
}

static int
check_that_all_can_be_required(void)
{
    struct cn_walls walls;
    int rc = raise_walls(CN_WALLS_REQUIRE, &walls);

    WANT(walls.lacking[0] ? rc == CN_E_LOAD_FAILED : rc == 0);
    return 0;
}

static void
no_wall_is_built_where_none_is_wanted(void **state)
{
    (void)state;
    in_a_child(check_that_off_builds_nothing);
}

static void
a_worker_has_no_capabilities_and_gets_none(void **state)
{
    (void)state;
    in_a_child(check_that_on_takes_all_rights);
}

static void
a_worker_of_root_reads_only_what_the_owner_may_read(void **state)
{
    (void)state;
    in_a_child(check_that_root_keeps_only_its_files);
}

static void
a_worker_reaches_no_other_process_and_no_network(void **state)
{
    (void)state;
    in_a_child(check_that_others_are_out_of_reach);
}

static void
a_worker_has_files_of_its_own(void **state)
{
    (void)state;
    in_a_child(check_that_files_are_its_own);
}

static void
a_model_that_asks_for_the_network_has_it(void **state)
{
    (void)state;
    in_a_child(check_that_a_network_can_be_given);
    in_a_child(check_that_a_shared_store_needs_the_network);
}

static void
required_walls_fail_the_load_only_where_one_is_lacking(void **state)
{
    (void)state;
    in_a_child(check_that_all_can_be_required);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wall_is_built_where_none_is_wanted),
        cmocka_unit_test(a_worker_has_no_capabilities_and_gets_none),
        cmocka_unit_test(a_worker_of_root_reads_only_what_the_owner_may_read),
        cmocka_unit_test(a_worker_reaches_no_other_process_and_no_network),
        cmocka_unit_test(a_worker_has_files_of_its_own),
        cmocka_unit_test(a_model_that_asks_for_the_network_has_it),
        cmocka_unit_test(required_walls_fail_the_load_only_where_one_is_lacking),
    };

    return cmocka_run_group_tests_name("worker.walls", tests, NULL, NULL);
}
