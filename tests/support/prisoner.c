/* tests/support/prisoner.c - a handler that tries to get out of its worker. The body of a request
 * is a verb and up to two words for it; the answer is "done", or the name of the error. It tries
 * whether something can be done, and changes nothing where it can. For tests/e2e/test_escape.py. */
#include <continuo/handler.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED(a) ((void)(a))

static int
opened(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

/* --- files */

static int
try_read(const char *path, const char *more)
{
    char byte;
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    int rc = fd < 0 || read(fd, &byte, 1) < 0 ? -1 : 0;
    int failed = errno;

    UNUSED(more);
    if (fd >= 0)
        close(fd);
    errno = failed;
    return rc;
}

static int
try_open(const char *path, const char *more)
{
    UNUSED(more);
    return opened(open(path, O_RDONLY | O_NONBLOCK));
}

static int
try_write(const char *path, const char *more)
{
    UNUSED(more);
    return opened(open(path, O_WRONLY | O_NONBLOCK));
}

static int
try_list(const char *path, const char *more)
{
    DIR *dir = opendir(path);

    UNUSED(more);
    if (!dir)
        return -1;
    closedir(dir);
    return 0;
}

static int
try_create(const char *path, const char *more)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

    UNUSED(more);
    if (fd < 0)
        return -1;
    close(fd);
    return unlink(path);
}

static int
try_link(const char *path, const char *to)
{
    if (link(path, to) != 0)
        return -1;
    return unlink(to);
}

/* Goes through the descriptor of the locked state folder, which each worker inherits. */
static int
try_inherited(const char *path, const char *more)
{
    UNUSED(more);
    return opened(openat(4, path, O_RDONLY));
}

static int
try_where(const char *path, const char *more)
{
    char text[256];

    UNUSED(more);
    return readlink(path, text, sizeof(text)) < 0 ? -1 : 0;
}

static int
try_device(const char *path, const char *more)
{
    UNUSED(more);
    if (mknod(path, 0600 | S_IFBLK, makedev(8, 0)) != 0)
        return -1;
    return unlink(path);
}

static int
try_program(const char *path, const char *argument)
{
    int status;
    pid_t child = fork();

    if (child < 0)
        return -1;
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(127);
        execl(path, path, argument, (char *)NULL);
        _exit(126);
    }
    waitpid(child, &status, 0);
    errno = EACCES;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* --- other processes */

static int
try_signal(const char *pid, const char *more)
{
    UNUSED(more);
    return kill(atoi(pid), 0);
}

static int
try_pidfd_signal(const char *pid, const char *more)
{
    int fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
    int rc = fd < 0 ? -1 : (int)syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0);

    UNUSED(more);
    return rc;
}

static int
try_attach(const char *pid, const char *more)
{
    UNUSED(more);
    return (int)ptrace(PTRACE_SEIZE, atoi(pid), NULL, NULL);
}

static int
try_memory(const char *pid, const char *more)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)0x10000, 1};

    UNUSED(more);
    return process_vm_readv(atoi(pid), &to, 1, &from, 1, 0) < 0 ? -1 : 0;
}

static int
try_descriptor(const char *pid, const char *more)
{
    int fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);

    UNUSED(more);
    return fd < 0 ? -1 : opened((int)syscall(438 /* pidfd_getfd */, fd, 0, 0));
}

static int
try_priority(const char *pid, const char *more)
{
    UNUSED(more);
    return setpriority(PRIO_PROCESS, (id_t)atoi(pid), getpriority(PRIO_PROCESS, (id_t)atoi(pid)));
}

/* Sets a limit to what it is already. */
static int
try_limit(const char *pid, const char *more)
{
    struct rlimit limit;

    UNUSED(more);
    return prlimit(atoi(pid), RLIMIT_CPU, NULL, &limit) != 0
               ? -1
               : prlimit(atoi(pid), RLIMIT_CPU, &limit, NULL);
}

static int
try_scheduler(const char *pid, const char *more)
{
    const struct sched_param none = {0};

    UNUSED(more);
    return sched_setscheduler(atoi(pid), SCHED_OTHER, &none);
}

static int
try_disk_priority(const char *pid, const char *more)
{
    const long now = syscall(SYS_ioprio_get, 1, atoi(pid));

    UNUSED(more);
    return now < 0 ? -1 : (int)syscall(SYS_ioprio_set, 1, atoi(pid), now);
}

/* Starts this number of processes, which wait, and ends them again. */
static int
try_processes(const char *count, const char *more)
{
    static pid_t children[1000];
    int n = 0, wanted = atoi(count), failed;

    UNUSED(more);
    while (n < wanted && n < 1000 && (children[n] = fork()) > 0)
        n++;
    if (n < wanted && children[n] == 0)
        for (;;)
            pause();
    failed = errno;
    for (int i = 0; i < n; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    errno = failed;
    return n < wanted ? -1 : 0;
}

/* Leaves a process that waits. */
static int
try_leave(const char *none, const char *more)
{
    pid_t child = fork();

    UNUSED(none), UNUSED(more);
    if (child == 0)
        for (;;)
            pause();
    return child < 0 ? -1 : 0;
}

/* --- what all processes of a user share */

static int
try_shared_memory(const char *none, const char *more)
{
    int id = shmget(IPC_PRIVATE, 4096, 0600);

    UNUSED(none), UNUSED(more);
    return id < 0 ? -1 : shmctl(id, IPC_RMID, NULL);
}

static int
try_semaphores(const char *none, const char *more)
{
    int id = semget(IPC_PRIVATE, 1, 0600);

    UNUSED(none), UNUSED(more);
    return id < 0 ? -1 : semctl(id, 0, IPC_RMID);
}

static int
try_messages(const char *none, const char *more)
{
    int id = msgget(IPC_PRIVATE, 0600);

    UNUSED(none), UNUSED(more);
    return id < 0 ? -1 : msgctl(id, IPC_RMID, NULL);
}

/* --- sockets */

static int
try_socket(const char *family, const char *type)
{
    return opened(socket(atoi(family), atoi(type), 0));
}

/* A pair of sockets for datagrams reaches services of the machine, by their addresses. */
static int
try_pair(const char *family, const char *type)
{
    int pair[2];

    if (socketpair(atoi(family), atoi(type), 0, pair) != 0)
        return -1;
    close(pair[0]);
    close(pair[1]);
    return 0;
}

static int
try_connect(const char *port, const char *more)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    UNUSED(more);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to));
}

/* --- rights */

static int
try_user(const char *more, const char *none)
{
    UNUSED(none);
    return setresuid((uid_t)atoi(more), (uid_t)atoi(more), (uid_t)atoi(more));
}

static int
try_group(const char *more, const char *none)
{
    gid_t group = (gid_t)atoi(more);

    UNUSED(none);
    return setgroups(1, &group);
}

static int
try_capability(const char *more, const char *none)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, 0}, {0, 0, 0}};

    UNUSED(more), UNUSED(none);
    return (int)syscall(SYS_capset, &head, all);
}

static int
try_root(const char *path, const char *none)
{
    UNUSED(none);
    return chroot(path);
}

static int
try_mount(const char *path, const char *none)
{
    UNUSED(none);
    return mount("none", path, "tmpfs", 0, NULL);
}

static int
try_space(const char *flags, const char *none)
{
    UNUSED(none);
    return unshare((int)strtol(flags, NULL, 16));
}

static int
try_join(const char *pid, const char *none)
{
    char path[64];
    int fd;

    UNUSED(none);
    snprintf(path, sizeof(path), "/proc/%s/ns/mnt", pid);
    fd = open(path, O_RDONLY);
    return fd < 0 ? -1 : setns(fd, 0);
}

static const struct {
    const char *name;
    long number;
} calls[] = {
    {"acct", SYS_acct},
    {"add_key", SYS_add_key},
    {"bpf", SYS_bpf},
    {"clock_settime", SYS_clock_settime},
    {"fanotify_init", SYS_fanotify_init},
    {"init_module", SYS_init_module},
    {"io_uring_setup", SYS_io_uring_setup},
    {"kexec_load", SYS_kexec_load},
    {"keyctl", SYS_keyctl},
    {"open_by_handle_at", SYS_open_by_handle_at},
    {"perf_event_open", SYS_perf_event_open},
    {"pivot_root", SYS_pivot_root},
    {"reboot", SYS_reboot},
    {"sethostname", SYS_sethostname},
    {"settimeofday", SYS_settimeofday},
    {"swapon", SYS_swapon},
    {"userfaultfd", SYS_userfaultfd},
};

/* A system call whose arguments are all zero. */
static int
try_call(const char *name, const char *none)
{
    UNUSED(none);
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        if (strcmp(name, calls[i].name) == 0)
            return (int)syscall(calls[i].number, 0, 0, 0, 0, 0, 0);
    return 0;
}

static const struct {
    const char *verb;
    int (*act)(const char *first, const char *second);
} verbs[] = {
    {"read", try_read},
    {"open", try_open},
    {"write", try_write},
    {"list", try_list},
    {"create", try_create},
    {"link", try_link},
    {"inherited", try_inherited},
    {"where", try_where},
    {"device", try_device},
    {"program", try_program},
    {"signal", try_signal},
    {"pidfd_signal", try_pidfd_signal},
    {"attach", try_attach},
    {"memory", try_memory},
    {"descriptor", try_descriptor},
    {"priority", try_priority},
    {"socket", try_socket},
    {"pair", try_pair},
    {"connect", try_connect},
    {"user", try_user},
    {"group", try_group},
    {"capability", try_capability},
    {"root", try_root},
    {"mount", try_mount},
    {"space", try_space},
    {"join", try_join},
    {"call", try_call},
    {"limit", try_limit},
    {"scheduler", try_scheduler},
    {"disk_priority", try_disk_priority},
    {"processes", try_processes},
    {"leave", try_leave},
    {"shared_memory", try_shared_memory},
    {"semaphores", try_semaphores},
    {"messages", try_messages},
};

static const char *
attempt(char *words)
{
    char *rest = NULL, *verb = strtok_r(words, " ", &rest), *first = strtok_r(NULL, " ", &rest);
    char *second = strtok_r(NULL, " ", &rest);

    for (size_t i = 0; verb && i < sizeof(verbs) / sizeof(*verbs); i++)
        if (strcmp(verb, verbs[i].verb) == 0) {
            errno = 0;
            return verbs[i].act(first ? first : "", second) < 0 ? strerrorname_np(errno) : "done";
        }
    return "unknown";
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    char words[1024];

    UNUSED(model);
    for (size_t i = 0; i < n; i++) {
        const struct continuo_bytes body = continuo_body(items[i]);

        snprintf(words, sizeof(words), "%.*s", (int)body.len, body.data);
        continuo_replyf(items[i], "%s", attempt(words));
    }
    return 0;
}

CONTINUO_EXPORT const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
