/* worker/process/fork.c - a fork whose child is the server's own, as its parent is. One thread.
 *
 * The server is told of the end of its children only, and PR_SET_PDEATHSIG is about the parent; so
 * a forked worker must be a child of the server like any other, which fork() can't do. The system
 * call can (CLONE_PARENT), but the C library does not know of it, so that two things have to be put
 * right here: the thread's number, which the library keeps in memory and takes for the owner of a
 * mutex, and the list of robust mutexes, which a child doesn't inherit. LMDB's writers have such a
 * mutex. A third thing is ours: the random bytes that the parent has fetched and not used yet. */
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

/* Where the C library keeps the thread's number; NULL: the kernel doesn't say. */
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

    /* A child has the forking thread only; whatever the others held stays held. */
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
    /* The place of the child's number is the fourth argument or the fifth, by architecture; the
     * other one isn't looked at without CLONE_SETTLS. */
    pid = syscall(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD,
                  NULL, NULL, number, number);
    if (pid == 0) {
        syscall(SYS_set_robust_list, robust, robust_bytes);
        cn_random_forget();
    }
    return (pid_t)pid;
}
