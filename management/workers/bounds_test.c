/* management/workers/bounds_test.c - tests that each worker gets a control group with its bounds,
 * in a folder that looks like the kernel's, and what is said where there are none. */
#include "management/workers/bounds.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[PATH_MAX], mount[PATH_MAX + 8], own[PATH_MAX + 8];

static void
put(const char *parent, const char *name, const char *text)
{
    char path[2 * PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", parent, name);
    assert_non_null(file = fopen(path, "w"));
    fputs(text, file);
    fclose(file);
}

static const char *
get(const char *parent, const char *name)
{
    static char text[256];
    char path[2 * PATH_MAX];
    int fd;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/%s", parent, name);
    if ((fd = open(path, O_RDONLY)) < 0)
        return "no file";
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* A group with the files that the kernel makes in it. */
static const char *
group(const char *name)
{
    static const char *const files[] = {"memory.max", "memory.oom.group", "cpu.max",
                                        "pids.max",   "cgroup.procs",     "cgroup.kill"};
    static char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", mount, name);
    mkdir(path, 0755);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        put(path, files[i], "");
    return path;
}

static const char *
group_of(unsigned id)
{
    char name[48];

    snprintf(name, sizeof(name), "worker-%d-%u", (int)getpid(), id);
    return group(name);
}

static int
begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/continuo-bounds-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(mount, sizeof(mount), "%s/cgroup", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    mkdir(mount, 0755);
    put(mount, "cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
    put(mount, "cgroup.subtree_control", "");
    put(mount, "cgroup.procs", "");
    put(folder, "own", "4:memory:/elsewhere\n0::/\n");
    group("server");
    return 0;
}

static int
end(void **state)
{
    char command[PATH_MAX + 16];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* The server leaves the group that it begins in, since that gives its controllers to others. */
static void
server_moves_below_its_group(void **state)
{
    (void)state;
    cn_bounds_start(mount, own);
    assert_string_equal(cn_bounds_no_groups(), "");
    assert_string_equal(get(mount, "server/cgroup.procs"), "0");
    assert_string_equal(get(mount, "cgroup.subtree_control"), "+memory +cpu +pids");
}

/* Only the controllers that there are; the one for processor sets is not the one for CPU time. */
static void
missing_controllers_are_left_out(void **state)
{
    (void)state;
    put(mount, "cgroup.controllers", "cpuset pids\n");
    cn_bounds_start(mount, own);
    assert_string_equal(get(mount, "cgroup.subtree_control"), "+pids");
    put(mount, "cgroup.controllers", "cpuset io\n");
    cn_bounds_start(mount, own);
    assert_non_null(strstr(cn_bounds_no_groups(), "no controllers"));
}

static void
worker_gets_its_bounds(void **state)
{
    const struct cn_bounds bounds = {.memory_bytes = 1 << 30, .cpu_percent = 150, .processes = 64};
    char lacking[CN_BOUNDS_TEXT], pid[32];
    const char *path = group_of(7);

    (void)state;
    cn_bounds_start(mount, own);
    cn_bounds_set(&bounds, 7, getpid(), false, lacking);
    assert_string_equal(lacking, "");
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_string_equal(get(path, "memory.max"), "1073741824");
    assert_string_equal(get(path, "memory.oom.group"), "1");
    assert_string_equal(get(path, "cpu.max"), "150000 100000");
    assert_string_equal(get(path, "pids.max"), "64");
    assert_string_equal(get(path, "cgroup.procs"), pid);
    cn_bounds_set(&(struct cn_bounds){0}, 7, getpid(), false, lacking);
    assert_string_equal(get(path, "memory.max"), "max");
    assert_string_equal(get(path, "cpu.max"), "max 100000");
    assert_string_equal(get(path, "pids.max"), "max");
}

/* The kernel's count of processes that were killed for want of memory tells that cause from other
 * SIGKILLs. */
static void
memory_that_was_exceeded_is_told(void **state)
{
    const char *path = group_of(8);

    (void)state;
    cn_bounds_start(mount, own);
    assert_false(cn_bounds_took_too_much(8)); /* no such file */
    put(path, "memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 1\noom_group_kill 0\n");
    assert_false(cn_bounds_took_too_much(8));
    put(path, "memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n");
    assert_true(cn_bounds_took_too_much(8));
}

/* What a worker has left behind dies with it, and empty groups go. */
static void
end_of_a_worker_ends_its_group(void **state)
{
    char empty[2 * PATH_MAX];
    const char *path = group_of(8);

    (void)state;
    cn_bounds_start(mount, own);
    snprintf(empty, sizeof(empty), "%s/worker-%d-5", mount, (int)getpid());
    mkdir(empty, 0755);
    cn_bounds_end(8);
    assert_string_equal(get(path, "cgroup.kill"), "1");
    assert_int_equal(access(empty, F_OK), -1);
}

/* A bound that cannot be written is named, and so is the reason. */
static void
failures_are_named(void **state)
{
    const struct cn_bounds bounds = {.memory_bytes = 1 << 30, .processes = 64};
    char lacking[CN_BOUNDS_TEXT], path[2 * PATH_MAX];

    (void)state;
    cn_bounds_start(mount, own);
    snprintf(path, sizeof(path), "%s/pids.max", group_of(9));
    unlink(path);
    cn_bounds_set(&bounds, 9, getpid(), false, lacking);
    assert_string_equal(lacking, "processes: No such file or directory");
}

/* Without groups, the kernel bounds the processes of a user, but not those of root. */
static void
without_groups_the_user_is_bounded(void **state)
{
    const struct cn_bounds bounds = {.memory_bytes = 1 << 30, .processes = 64};
    char lacking[CN_BOUNDS_TEXT];
    struct rlimit limit;
    int status = 0;
    pid_t child;

    (void)state;
    put(folder, "own", "4:memory:/elsewhere\n0::/below\n");
    cn_bounds_start(mount, own);
    assert_non_null(strstr(cn_bounds_no_groups(), "cannot be read"));
    if ((child = fork()) == 0) {
        cn_bounds_set(&bounds, 1, getpid(), false, lacking);
        getrlimit(RLIMIT_NPROC, &limit);
        if (!strstr(lacking, "memory: "))
            _exit(1);
        _exit(geteuid() == 0 ? (strstr(lacking, "processes: ") ? 0 : 2)
                             : (limit.rlim_max < 1000000 && limit.rlim_max > 64 ? 0 : 3));
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    /* Workers inherit the limits of the process that forks them. It lacks nothing: for a user whose
     * workers are bounded, the log would say that they are not. */
    if ((child = fork()) == 0) {
        struct rlimit before;

        getrlimit(RLIMIT_NPROC, &before);
        cn_bounds_set(&bounds, 2, getpid(), true, lacking);
        getrlimit(RLIMIT_NPROC, &limit);
        _exit(limit.rlim_max == before.rlim_max && !lacking[0] ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    put(folder, "own", "4:memory:/elsewhere\n");
    cn_bounds_start(mount, own);
    assert_string_equal(cn_bounds_no_groups(), "control groups (version 2) are not mounted");
}

/* A service that root runs has a group whose files root could write, but which is systemd's. */
static void
group_that_is_not_delegated_is_left_alone(void **state)
{
    char below[2 * PATH_MAX];

    (void)state;
    if (geteuid() != 0)
        skip(); /* only root could write the group of another service */
    snprintf(below, sizeof(below), "%s/a.service", mount);
    mkdir(below, 0755);
    put(below, "cgroup.controllers", "cpu memory pids\n");
    put(below, "cgroup.subtree_control", "");
    put(folder, "own", "0::/a.service\n");
    cn_bounds_start(mount, own);
    assert_non_null(strstr(cn_bounds_no_groups(), "Delegate=yes"));
    assert_string_equal(get(below, "cgroup.subtree_control"), "");
}

static void
smaller_bound_counts(void **state)
{
    const struct cn_bounds bounds =
        cn_bounds_smaller((struct cn_bounds){0, 200, 10, 0}, (struct cn_bounds){5, 100, 20, 8});

    (void)state;
    assert_int_equal(bounds.memory_bytes, 5);
    assert_int_equal(bounds.cpu_percent, 100);
    assert_int_equal(bounds.processes, 10);
    assert_int_equal(bounds.temp_bytes, 8);
}

int
main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(server_moves_below_its_group),
        TEST(missing_controllers_are_left_out),
        TEST(worker_gets_its_bounds),
        TEST(memory_that_was_exceeded_is_told),
        TEST(end_of_a_worker_ends_its_group),
        TEST(failures_are_named),
        TEST(without_groups_the_user_is_bounded),
        TEST(group_that_is_not_delegated_is_left_alone),
        TEST(smaller_bound_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
