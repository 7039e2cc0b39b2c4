/* store/link/lookup.c - calls getaddrinfo() in a thread, so that the wait for it can end. The
 * link's thread, and the lookup's own.
 *
 * getaddrinfo() takes no deadline, and with a name server that does not answer it may need half a
 * minute. So it runs in a detached thread, and its caller waits for the eventfd only until the
 * deadline. The thread cannot be stopped: a lookup that is given up stays in *pending, and the next
 * call for the same host goes on waiting for it. A connection has one such thread at most.
 * Addresses such as 10.0.0.1 are converted without a thread. */
#include "store/link/lookup.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"

/* It belongs to its owner and to the thread; the one that lets go of it last frees it. */
struct cn_lookup {
    atomic_int owners;
    atomic_bool done;
    int done_fd; /* an eventfd that becomes readable when `done` is set */
    int rc;
    struct addrinfo *found;
    char host[256], port[8];
};

static const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
static const struct addrinfo numeric = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};

bool
cn_wait_for_fd(int fd, short events, uint64_t deadline_us)
{
    return cn_wait_for_fds(&(struct pollfd){.fd = fd, .events = events}, 1, deadline_us);
}

bool
cn_wait_for_fds(struct pollfd *watched, uint32_t count, uint64_t deadline_us)
{
    for (;;) {
        const uint64_t now = cn_now_us();
        int n;

        if (now >= deadline_us)
            return false;
        n = poll(watched, count, (int)((deadline_us - now + 999) / 1000));
        if (n < 0 && errno != EINTR)
            for (uint32_t i = 0; i < count; i++)
                watched[i].revents = watched[i].events; /* the next read or write says why */
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
    }
}

void
cn_lookup_forget(struct cn_lookup *lookup)
{
    if (!lookup || atomic_fetch_sub(&lookup->owners, 1) != 1)
        return;
    if (lookup->found)
        freeaddrinfo(lookup->found);
    close(lookup->done_fd);
    cn_free(lookup);
}

static void *
lookup_main(void *arg)
{
    struct cn_lookup *lookup = arg;
    const uint64_t one = 1;

    lookup->rc = getaddrinfo(lookup->host, lookup->port, &wanted, &lookup->found);
    atomic_store(&lookup->done, true);
    if (write(lookup->done_fd, &one, sizeof(one)) < 0) {
        /* It cannot fail: nobody else writes to it. */
    }
    cn_lookup_forget(lookup);
    return NULL;
}

/* Returns NULL if the system has no thread or descriptor left. */
static struct cn_lookup *
begin(const char *host, const char *port)
{
    struct cn_lookup *lookup = cn_alloc(sizeof(*lookup));
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    snprintf(lookup->port, sizeof(lookup->port), "%s", port);
    lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&lookup->owners, 2);
    sigfillset(&all); /* signals are for the worker's own thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = lookup->done_fd < 0 ? errno : pthread_create(&thread, &attr, lookup_main, lookup);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        return lookup;
    if (lookup->done_fd >= 0)
        close(lookup->done_fd);
    cn_free(lookup);
    return NULL;
}

int
cn_lookup_host(struct cn_lookup **pending, const char *host, uint16_t port, uint64_t deadline_us,
               struct addrinfo **out)
{
    struct cn_lookup *lookup = *pending;
    char service[8];
    int rc;

    snprintf(service, sizeof(service), "%u", port);
    *out = NULL;
    if (getaddrinfo(host, service, &numeric, out) == 0)
        return 0;
    if (lookup && (strcmp(lookup->host, host) != 0 || strcmp(lookup->port, service) != 0)) {
        if (!cn_wait_for_fd(lookup->done_fd, POLLIN, deadline_us))
            return EAI_AGAIN; /* one thread at a time */
        cn_lookup_forget(lookup);
        lookup = *pending = NULL;
    }
    if (!lookup && !(lookup = *pending = begin(host, service)))
        return EAI_MEMORY;
    if (!cn_wait_for_fd(lookup->done_fd, POLLIN, deadline_us) || !atomic_load(&lookup->done))
        return EAI_AGAIN;
    rc = lookup->rc;
    *out = lookup->found;
    lookup->found = NULL;
    cn_lookup_forget(lookup);
    *pending = NULL;
    return rc;
}
