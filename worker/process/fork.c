/* worker/process/fork.c - forks a sibling: a child of the caller's parent. One thread.
 *
 * The kernel reports the end of a process to its parent only, and PR_SET_PDEATHSIG ties a process
 * to its parent. So a worker that a zygote forks must be a child of the server, as any other worker
 * is. fork() always makes a child of the caller. The system call clone can make a child of the
 * caller's parent (CLONE_PARENT), but the C library does not expect such a process. So two things
 * have to be put right here. The first is the thread's id, which the library keeps in memory and
 * uses as the owner of a mutex. The second is the list of robust mutexes, which a child does not
 * inherit and which LMDB needs for its writers' mutex. A third thing is our own: the random bytes
 * that the parent has read and not used yet must not be used twice.
 */
#include "worker/process/fork.h"

#include <dirent.h>
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/system/random.h"

/* Returns where the C library keeps the thread's id; NULL: the kernel does not say. */
static void *
thread_number(void)
{
    void *address = NULL;

    if (prctl(PR_GET_TID_ADDRESS, &address) != 0 || !address ||
        *(const pid_t *)address != (pid_t)syscall(SYS_gettid))
        return NULL;
    return address;
}

static unsigned
count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned n = 0;

    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

int
cn_fork_check(struct cn_error *err)
{
    unsigned n = count_threads();

    /* A child has only the forking thread, so locks that other threads held would stay locked. */
    if (n != 1)
        return cn_fail(err, CN_E_UNIMPLEMENTED, "loading the model left %u threads running", n);
    if (!thread_number())
        return cn_fail(err, CN_E_UNIMPLEMENTED, "the kernel has no PR_GET_TID_ADDRESS");
    return 0;
}

pid_t
cn_fork_sibling(void)
{
    void *number = thread_number(), *robust = NULL;
    size_t robust_bytes = 0;
    long pid;

    if (!number || syscall(SYS_get_robust_list, 0, &robust, &robust_bytes) != 0) {
        errno = ENOSYS;
        return -1;
    }
    /* The address of the child's thread id is the fourth or the fifth argument, depending on the
     * architecture. The other one is ignored without CLONE_SETTLS. */
    pid = syscall(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD,
                  NULL, NULL, number, number);
    if (pid == 0) {
        syscall(SYS_set_robust_list, robust, robust_bytes);
        cn_random_forget();
    }
    return (pid_t)pid;
}
