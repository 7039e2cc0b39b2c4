/* management/workers/bounds.c - the groups of workers, and the kernel's bound on the processes of a
 * user. Any loop; a lock lets only one work on the groups.
 *
 * A group with processes of its own cannot give controllers to groups below it. So the server moves
 * into "server", and workers get "worker-PID-ID" beside it, with the server's pid. Removing a group
 * fails while a process of it is still ending. Therefore each worker that starts or ends removes
 * all groups that are empty by then.
 */
#include "management/workers/bounds.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/log/log.h"

#define NAME_BYTES 48
#define PERIOD_US 100000

static struct {
    pthread_mutex_t lock;
    char base[PATH_MAX]; /* the delegated group; "": none */
    char why_not[CN_BOUNDS_TEXT / 2];
} groups = {.lock = PTHREAD_MUTEX_INITIALIZER, .why_not = "they were not looked for"};

struct cn_bounds
cn_bounds_smaller(struct cn_bounds one, struct cn_bounds other)
{
#define SMALLER(field)                                                                             \
    if (other.field && (!one.field || other.field < one.field))                                    \
    one.field = other.field
    SMALLER(memory_bytes);
    SMALLER(cpu_percent);
    SMALLER(processes);
    SMALLER(temp_bytes);
#undef SMALLER
    return one;
}

/* --- files */

static bool
join(char out[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* Reads a small file as text. Returns false, and sets errno, if it cannot be read. */
static bool
read_text(const char *path, char *out, size_t out_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, out_bytes - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

/* Returns 0 or -1 with errno. */
static int
write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    ssize_t n;
    int fd, failed;

    if (!join(path, folder, name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if ((fd = open(path, O_WRONLY | O_CLOEXEC | O_TRUNC)) < 0)
        return -1;
    n = write(fd, text, strlen(text));
    failed = errno;
    close(fd);
    errno = failed;
    return n < 0 ? -1 : 0;
}

/* --- the server's group */

static void
no_groups(const char *why, int error)
{
    snprintf(groups.why_not, sizeof(groups.why_not), "%s%s%s", why, error ? ": " : "",
             error ? strerror(error) : "");
    groups.base[0] = '\0';
}

/* Reads the line "0::/path" of /proc/self/cgroup. */
static bool
own_path(const char *file, char out[PATH_MAX])
{
    char text[8192], *line;

    if (!read_text(file, text, sizeof(text)))
        return false;
    line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
    if (!line)
        return false;
    line = strstr(line, "0::/") + 3;
    line[strcspn(line, "\n")] = '\0';
    return snprintf(out, PATH_MAX, "%s", line) < PATH_MAX;
}

/* Has a service manager given the group to the server? systemd marks such groups (Delegate=). A
 * user owns the files of groups that are given to it. Root owns them all; in a container with a
 * group of its own, that group is "/". */
static bool
is_delegated(const char *base, const char *path)
{
    char file[PATH_MAX], word[4];

    if (!join(file, base, "cgroup.subtree_control") || access(file, W_OK) != 0)
        return false;
    return geteuid() != 0 || strcmp(path, "/") == 0 ||
           getxattr(base, "trusted.delegate", word, sizeof(word)) > 0 ||
           getxattr(base, "user.delegate", word, sizeof(word)) > 0;
}

/* Words are between spaces, and the last one before a line feed. */
static bool
has_word(const char *text, const char *word)
{
    size_t n;

    for (; *text; text += n + strspn(text + n, " \n")) {
        n = strcspn(text, " \n");
        if (n == strlen(word) && strncmp(text, word, n) == 0)
            return true;
    }
    return false;
}

/* Moves the server into a group below `base`, which then gives controllers to its other groups. */
static void
take_group(const char *base, const char *controllers)
{
    char server[PATH_MAX], wanted[64] = "";

    for (int i = 0; i < 3; i++) {
        const char *name = (const char *[]){"memory", "cpu", "pids"}[i];

        if (has_word(controllers, name))
            snprintf(wanted + strlen(wanted), sizeof(wanted) - strlen(wanted), "%s+%s",
                     wanted[0] ? " " : "", name);
    }
    if (!wanted[0] || !join(server, base, "server"))
        return no_groups("the server's control group has no controllers for memory, CPU or pids",
                         0);
    if (mkdir(server, 0755) != 0 && errno != EEXIST)
        return no_groups("a control group cannot be made", errno);
    if (write_text(server, "cgroup.procs", "0") != 0)
        return no_groups("the server cannot move into another control group", errno);
    if (write_text(base, "cgroup.subtree_control", wanted) != 0) {
        no_groups("controllers cannot be given to control groups of workers", errno);
        if (write_text(base, "cgroup.procs", "0") == 0)
            rmdir(server);
        return;
    }
    snprintf(groups.base, sizeof(groups.base), "%s", base);
    groups.why_not[0] = '\0';
}

void
cn_bounds_start(const char *mount, const char *own)
{
    static const char *const usual[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char path[PATH_MAX], base[PATH_MAX], file[PATH_MAX], controllers[256];

    for (int i = 0; !mount && i < 2; i++)
        if (join(file, usual[i], "cgroup.controllers") && access(file, R_OK) == 0)
            mount = usual[i];
    if (!mount || !own_path(own, path))
        return no_groups("control groups (version 2) are not mounted", 0);
    if (snprintf(base, sizeof(base), "%s%s", mount, strcmp(path, "/") == 0 ? "" : path) >=
            (int)sizeof(base) ||
        !join(file, base, "cgroup.controllers") ||
        !read_text(file, controllers, sizeof(controllers)))
        return no_groups("the server's control group cannot be read", errno);
    if (!is_delegated(base, path))
        return no_groups("the server's control group is not delegated to it (Delegate=yes)", 0);
    take_group(base, controllers);
}

const char *
cn_bounds_no_groups(void)
{
    return groups.why_not;
}

/* --- a worker's group */

/* Two servers may have the same group, in a container for example. */
static void
name_of(char out[NAME_BYTES], uint32_t id)
{
    snprintf(out, NAME_BYTES, "worker-%d-%u", (int)getpid(), id);
}

/* A group that has processes, or is being left, cannot be removed. */
static void
remove_empty_groups(void)
{
    DIR *dir = opendir(groups.base);
    const struct dirent *entry;
    char own[NAME_BYTES];

    snprintf(own, sizeof(own), "worker-%d-", (int)getpid());
    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, own, strlen(own)) == 0)
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
}

static void
lacks(char lacking[CN_BOUNDS_TEXT], const char *bound, const char *why)
{
    const size_t used = strlen(lacking);

    if (used < CN_BOUNDS_TEXT - 1 && snprintf(lacking + used, CN_BOUNDS_TEXT - used, "%s%s: %s",
                                              used ? "; " : "", bound, why) < 0)
        lacking[used] = '\0';
}

static void
set_group(const struct cn_bounds *bounds, const char *group, pid_t pid,
          char lacking[CN_BOUNDS_TEXT])
{
    char memory[32] = "max", cpu[48] = "max 100000", processes[32] = "max", number[32];

    if (bounds->memory_bytes)
        snprintf(memory, sizeof(memory), "%llu", (unsigned long long)bounds->memory_bytes);
    if (bounds->cpu_percent)
        snprintf(cpu, sizeof(cpu), "%llu %d",
                 (unsigned long long)bounds->cpu_percent * (PERIOD_US / 100), PERIOD_US);
    if (bounds->processes)
        snprintf(processes, sizeof(processes), "%u", bounds->processes);
    snprintf(number, sizeof(number), "%d", (int)pid);
    if (write_text(group, "memory.max", memory) != 0 && bounds->memory_bytes)
        lacks(lacking, "memory", strerror(errno));
    write_text(group, "memory.oom.group", "1"); /* all of its processes end, or none */
    if (write_text(group, "cpu.max", cpu) != 0 && bounds->cpu_percent)
        lacks(lacking, "cpu", strerror(errno));
    if (write_text(group, "pids.max", processes) != 0 && bounds->processes)
        lacks(lacking, "processes", strerror(errno));
    if (write_text(group, "cgroup.procs", number) != 0)
        lacks(lacking, "all", strerror(errno));
}

/* --- without groups */

/* Returns the number of threads in all processes of this user, as the kernel counts them for
 * RLIMIT_NPROC. It reads one file for each process of the machine, and is needed only where an
 * operator has asked for the bound. */
static uint64_t
threads_of_user(void)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    char path[PATH_MAX], text[4096];
    const char *uid, *threads;
    uint64_t n = 0;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name) >= (int)sizeof(path) ||
            !read_text(path, text, sizeof(text)))
            continue;
        uid = strstr(text, "\nUid:\t");
        threads = strstr(text, "\nThreads:\t");
        if (uid && threads && strtoul(uid + 6, NULL, 10) == getuid())
            n += strtoul(threads + 10, NULL, 10);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* A process that forks workers gets no such limit: they would inherit it, an ordinary user cannot
 * raise it for them, and no worker could be forked when others of that user have grown. Nothing is
 * said of it, because each of its workers says what it lacks itself. */
static void
set_limit(const struct cn_bounds *bounds, pid_t pid, bool forks, char lacking[CN_BOUNDS_TEXT])
{
    const char *why = groups.why_not;
    struct rlimit limit;

    if (forks)
        return;
    if (bounds->memory_bytes)
        lacks(lacking, "memory", why);
    if (bounds->cpu_percent)
        lacks(lacking, "cpu", bounds->memory_bytes ? "the same" : why);
    if (bounds->processes == 0)
        return;
    if (geteuid() == 0) {
        lacks(lacking, "processes",
              bounds->memory_bytes || bounds->cpu_percent ? "the same, and the user is root" : why);
        return;
    }
    limit.rlim_cur = limit.rlim_max = threads_of_user() + bounds->processes;
    if (prlimit(pid, RLIMIT_NPROC, &limit, NULL) != 0)
        lacks(lacking, "processes", strerror(errno));
}

/* --- both */

void
cn_bounds_set(const struct cn_bounds *bounds, uint32_t id, pid_t pid, bool forks,
              char lacking[CN_BOUNDS_TEXT])
{
    char group[PATH_MAX], name[NAME_BYTES];

    lacking[0] = '\0';
    if (!groups.base[0]) {
        set_limit(bounds, pid, forks, lacking);
        return;
    }
    name_of(name, id);
    pthread_mutex_lock(&groups.lock);
    remove_empty_groups();
    if (!join(group, groups.base, name) || (mkdir(group, 0755) != 0 && errno != EEXIST))
        lacks(lacking, "all", strerror(errno));
    else
        set_group(bounds, group, pid, lacking);
    pthread_mutex_unlock(&groups.lock);
}

bool
cn_bounds_took_too_much(uint32_t id)
{
    char group[PATH_MAX], path[PATH_MAX], name[NAME_BYTES], text[512];
    const char *times = NULL;

    name_of(name, id);
    if (groups.base[0] && join(group, groups.base, name) && join(path, group, "memory.events") &&
        read_text(path, text, sizeof(text)))
        times = strstr(text, "\noom "); /* the group's own limit, not the machine's */
    return times && strtoul(times + strlen("\noom "), NULL, 10) > 0;
}

void
cn_bounds_end(uint32_t id)
{
    char group[PATH_MAX], name[NAME_BYTES];

    if (!groups.base[0])
        return;
    name_of(name, id);
    pthread_mutex_lock(&groups.lock);
    if (join(group, groups.base, name))
        write_text(group, "cgroup.kill", "1");
    remove_empty_groups();
    pthread_mutex_unlock(&groups.lock);
}
