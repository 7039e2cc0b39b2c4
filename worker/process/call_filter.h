/* worker/process/call_filter.h - a seccomp filter against system calls that no worker needs. */
#ifndef CN_WORKER_PROCESS_CALL_FILTER_H
#define CN_WORKER_PROCESS_CALL_FILTER_H

#include <stdbool.h>

struct cn_call_rules {
    bool network; /* sockets of the Internet protocols may be opened */
    bool alone;   /* no program may be run, and no process started */
};

/* From now on these calls fail with EPERM in all threads of the process, and in its children. It
 * needs PR_SET_NO_NEW_PRIVS. Returns 0, or -1 and sets errno: EINVAL or ENOSYS if the kernel has no
 * seccomp filters, ENOTSUP if there is no filter for this processor, EBUSY if a thread has another
 * filter. */
int cn_call_filter_install(const struct cn_call_rules *rules);

#endif
