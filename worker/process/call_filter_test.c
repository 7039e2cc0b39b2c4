/* worker/process/call_filter_test.c - tests which calls the filter refuses. Each test installs it
 * in a child, because a filter cannot be removed. */
#include "worker/process/call_filter.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NEW_USER 0x10000000ul

/* A line number tells which condition of a child was false. */
#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)
#define WANT_REFUSED(call)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        if ((call) >= 0 || errno != EPERM)                                                         \
            return __LINE__;                                                                       \
    } while (0)

/* Installs the filter in a child and runs `check` there. It returns 0, or the number of the line
 * that failed. */
static void
behind(const struct cn_call_rules *rules, int (*check)(void))
{
    int *line =
        mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;
    int status;

    assert_ptr_not_equal(line, MAP_FAILED);
    *line = -1;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
            *line = cn_call_filter_install(rules) == 0 ? check() : errno == ENOTSUP ? -2 : -3;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    status = *line;
    munmap(line, sizeof(*line));
    if (status == -2)
        skip(); /* there is no filter for this processor */
    if (status != 0)
        fail_msg("the condition of line %d is false", status);
}

static void *
nothing(void *arg)
{
    return arg;
}

static int
opens(int family, int type)
{
    int fd = socket(family, type, 0);

    if (fd >= 0)
        close(fd);
    return fd;
}

static int
pairs(int family, int type)
{
    int pair[2], rc = socketpair(family, type, 0, pair);

    if (rc == 0) {
        close(pair[0]);
        close(pair[1]);
    }
    return rc;
}

static int
child_runs(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int
thread_runs(void)
{
    pthread_t thread;

    return pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

/* What every worker is refused. */
static int
check_the_list(void)
{
    struct rlimit limit = {0};

    WANT_REFUSED(syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0));
    WANT_REFUSED(syscall(SYS_unshare, NEW_USER));
    WANT_REFUSED(syscall(SYS_clone, NEW_USER | 17, NULL, NULL, NULL, NULL));
    WANT_REFUSED(syscall(SYS_setns, 0, 0));
    WANT_REFUSED(syscall(SYS_bpf, 0, NULL, 0));
    WANT_REFUSED(syscall(SYS_io_uring_setup, 1, NULL));
    WANT_REFUSED(syscall(SYS_userfaultfd, 0));
    WANT_REFUSED(syscall(SYS_keyctl, 0, 0));
    WANT_REFUSED(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
    WANT_REFUSED(syscall(SYS_mount, NULL, NULL, NULL, 0, NULL));
    WANT_REFUSED(opens(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC));
    WANT_REFUSED(opens(AF_UNIX, SOCK_DGRAM));
    WANT_REFUSED(opens(AF_PACKET, SOCK_RAW));
    WANT_REFUSED(prlimit(getppid(), RLIMIT_CORE, &limit, NULL));
    WANT(prlimit(0, RLIMIT_CORE, NULL, &limit) == 0);
    WANT_REFUSED(setpriority(PRIO_PROCESS, (id_t)getppid(), 0));
    WANT_REFUSED(setpriority(PRIO_USER, 0, 0));
    WANT(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)) == 0);
    WANT_REFUSED(shmget(IPC_PRIVATE, 4096, 0600));
    WANT(syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS);
    WANT(pairs(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC) == 0);
    WANT(pairs(AF_UNIX, SOCK_SEQPACKET) == 0);
    WANT_REFUSED(pairs(AF_UNIX, SOCK_DGRAM)); /* each of them could connect again */
    WANT_REFUSED(pairs(AF_UNIX, SOCK_RAW | SOCK_NONBLOCK));
    WANT_REFUSED(pairs(AF_INET, SOCK_STREAM));
    WANT(thread_runs());
    return 0;
}

static int
check_without_network(void)
{
    int line = check_the_list();

    WANT_REFUSED(opens(AF_INET, SOCK_STREAM));
    WANT_REFUSED(opens(AF_INET6, SOCK_DGRAM));
    WANT_REFUSED(opens(AF_NETLINK, SOCK_RAW));
    WANT(opens(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC) >= 0);
    WANT(child_runs());
    return line;
}

static int
check_with_network(void)
{
    int line = check_the_list();

    WANT(opens(AF_INET, SOCK_STREAM) >= 0);
    WANT(opens(AF_NETLINK, SOCK_RAW) >= 0);
    WANT(child_runs());
    return line;
}

static int
check_alone(void)
{
    int line = check_the_list();
    char word[] = "true";
    char *const words[] = {word, NULL};

    WANT_REFUSED(fork());
    WANT_REFUSED(execv("/bin/true", words));
    WANT_REFUSED(opens(AF_UNIX, SOCK_SEQPACKET));
    WANT_REFUSED(opens(AF_INET, SOCK_STREAM));
    return line;
}

static void
a_worker_without_network_opens_no_socket(void **state)
{
    (void)state;
    behind(&(struct cn_call_rules){.network = false}, check_without_network);
}

static void
a_worker_with_network_reaches_no_service_of_the_machine(void **state)
{
    (void)state;
    behind(&(struct cn_call_rules){.network = true}, check_with_network);
}

static void
a_worker_that_is_alone_has_threads_only(void **state)
{
    (void)state;
    behind(&(struct cn_call_rules){.alone = true}, check_alone);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_without_network_opens_no_socket),
        cmocka_unit_test(a_worker_with_network_reaches_no_service_of_the_machine),
        cmocka_unit_test(a_worker_that_is_alone_has_threads_only),
    };

    return cmocka_run_group_tests_name("worker.call_filter", tests, NULL, NULL);
}
