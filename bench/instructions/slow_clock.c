/* bench/instructions/slow_clock.c - lets time pass a hundredth as fast for our programs under
 * callgrind.
 *
 * Loaded before libc (LD_PRELOAD). A program under callgrind runs about a hundred times slower, and
 * slower still on a machine with other load. With the true time, work that is done every ten
 * milliseconds or every second would weigh as much more in each step. Only what our own programs
 * call is slowed: their clocks and their waits. Libraries have the true time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOWER 100

static uintptr_t code_begins, code_ends; /* of the program itself */

static int
note_program(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            code_begins = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            code_ends = code_begins + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program is the first of all objects */
}

__attribute__((constructor)) static void
find_program(void)
{
    dl_iterate_phdr(note_program, NULL);
}

static bool
is_ours(const void *caller)
{
    return (uintptr_t)caller >= code_begins && (uintptr_t)caller < code_ends;
}

static int
slower_ms(int timeout_ms)
{
    return timeout_ms <= 0                 ? timeout_ms
           : timeout_ms > INT_MAX / SLOWER ? INT_MAX
                                           : timeout_ms * SLOWER;
}

int
clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = (int)syscall(SYS_clock_gettime, id, out);
    int64_t ns;

    if (rc == 0 && id != CLOCK_PROCESS_CPUTIME_ID && id != CLOCK_THREAD_CPUTIME_ID &&
        is_ours(__builtin_return_address(0))) {
        ns = ((int64_t)out->tv_sec * 1000000000 + out->tv_nsec) / SLOWER;
        *out = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    }
    return rc;
}

int
epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
    if (is_ours(__builtin_return_address(0)))
        timeout_ms = slower_ms(timeout_ms);
    return epoll_pwait(fd, events, max, timeout_ms, NULL);
}

int
poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct timespec wait;

    if (is_ours(__builtin_return_address(0)))
        timeout_ms = slower_ms(timeout_ms);
    wait = (struct timespec){.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    return ppoll(fds, count, timeout_ms < 0 ? NULL : &wait, NULL);
}

/* The server gives its workers only a few variables of its environment. This one is for them
 * too. */
int
posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
            const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    typedef int spawn_fn(pid_t *, const char *, const posix_spawn_file_actions_t *,
                         const posix_spawnattr_t *, char *const[], char *const[]);
    spawn_fn *next;
    void *found = dlsym(RTLD_NEXT, "posix_spawn");
    char preload[4096];
    char *more[256];
    size_t n = 0;

    memcpy(&next, &found, sizeof(next));
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", getenv("LD_PRELOAD"));
    while (environment && environment[n] && n < 254) {
        more[n] = environment[n];
        n++;
    }
    more[n] = preload;
    more[n + 1] = NULL;
    return next(pid, path, actions, attributes, arguments, more);
}
