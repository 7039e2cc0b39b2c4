/* core/log/log_files.c - ring buffers from the loops to the thread that writes the log files
 * (log_writer.c).
 *
 * A ring has one writer, the thread that joined, and one reader, the log thread; so two counters of
 * bytes, `written` and `read`, are all that they share. The writer copies a line into the ring and
 * then moves `written`; the reader copies it out and then moves `read`. A line that finds no room
 * is counted and dropped. The order of lines is kept within a thread.
 *
 * The log thread sleeps until some ring gets its first line, and then looks at all rings every
 * NAP_MS. So a busy server pays for a wake-up a hundred times a second and not for each line.
 * `asleep` tells writers to wake it: the thread sets it and looks at the rings once more before it
 * sleeps, and a writer looks at it after it has moved `written`; with sequentially consistent
 * order, one of the two sees the other. */
#include "core/log/log_files.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/log/log_writer_priv.h"
#include "core/memory/mem.h"

#define RINGS_MAX 128 /* the loops and some other threads */
#define LINE_BYTES_MAX 8192
#define NAP_MS 10
#define LOOK_MS 1000 /* how soon a large ts_log.log, which other threads write, is noticed */
#define STOP_MS 2000

/* A line in a ring: u32 length, u8 file, then its bytes. It may go round the end of the ring at any
 * byte. */
#define HEAD_BYTES 5

struct ring {
    char *bytes;
    uint64_t size; /* a power of two */
    _Atomic uint64_t written, read;
};

/* Set by cn_log_files_start, before there are other threads. */
static uint64_t ring_bytes;
static bool started;
static pthread_t thread;
static int wake_fd;

/* Any thread. */
static struct ring rings[RINGS_MAX];
static atomic_uint n_rings;
static atomic_bool asleep, stopping, reopening;
static _Thread_local struct ring *own_ring;

/* --- rings */

static void
copy_in(struct ring *ring, uint64_t at, const void *bytes, size_t len)
{
    uint64_t offset = at & (ring->size - 1), first = ring->size - offset;

    if (first > len)
        first = len;
    memcpy(ring->bytes + offset, bytes, first);
    memcpy(ring->bytes, (const char *)bytes + first, len - first);
}

static void
copy_out(const struct ring *ring, uint64_t at, void *bytes, size_t len)
{
    uint64_t offset = at & (ring->size - 1), first = ring->size - offset;

    if (first > len)
        first = len;
    memcpy(bytes, ring->bytes + offset, first);
    memcpy((char *)bytes + first, ring->bytes, len - first);
}

void
cn_log_files_join(void)
{
    uint64_t size = 4096;
    struct ring *ring;
    unsigned i;

    if (!started || own_ring)
        return;
    i = atomic_fetch_add(&n_rings, 1);
    if (i >= RINGS_MAX) {
        atomic_fetch_sub(&n_rings, 1);
        return;
    }
    while (size < ring_bytes)
        size *= 2;
    ring = &rings[i];
    ring->size = size;
    ring->bytes = cn_alloc(size);
    own_ring = ring;
}

static void
wake(void)
{
    const uint64_t one = 1;

    while (write(wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

void
cn_log_files_put(enum cn_log_file file, const char *line, size_t len)
{
    struct ring *ring = own_ring;
    char head[HEAD_BYTES] = {0};
    uint32_t bytes = (uint32_t)len;
    uint64_t at;

    if (!ring || len > LINE_BYTES_MAX) {
        if (started)
            cn_log_drop(file, 1);
        return;
    }
    at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (ring->size - (at - atomic_load_explicit(&ring->read, memory_order_acquire)) <
        HEAD_BYTES + len) {
        cn_log_drop(file, 1);
        return;
    }
    memcpy(head, &bytes, sizeof(bytes));
    head[4] = (char)file;
    copy_in(ring, at, head, HEAD_BYTES);
    copy_in(ring, at + HEAD_BYTES, line, len);
    /* Sequentially consistent with `asleep`: either this thread sees that the log thread sleeps, or
     * the log thread sees the line before it sleeps. */
    atomic_store(&ring->written, at + HEAD_BYTES + len);
    if (atomic_load(&asleep) && atomic_exchange(&asleep, false))
        wake();
}

static void
take_line(struct ring *ring, uint64_t at, uint32_t *len)
{
    char head[HEAD_BYTES], line[LINE_BYTES_MAX];
    enum cn_log_file which;

    copy_out(ring, at, head, HEAD_BYTES);
    memcpy(len, head, sizeof(*len));
    which = (enum cn_log_file)head[4];
    copy_out(ring, at + HEAD_BYTES, line, *len);
    cn_log_writer_add(which, line, *len);
}

/* Writes all lines that are in the rings. True: there were some. */
static bool
drain_rings(void)
{
    unsigned n = atomic_load(&n_rings), i;
    bool any = false;

    for (i = 0; i < n && i < RINGS_MAX; i++) {
        struct ring *ring = &rings[i];
        uint64_t written = atomic_load(&ring->written);
        uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
        uint32_t len;

        for (; at != written; at += HEAD_BYTES + len) {
            take_line(ring, at, &len);
            any = true;
        }
        atomic_store_explicit(&ring->read, at, memory_order_release);
    }
    cn_log_writer_flush();
    return any;
}

static void
sleep_until_woken(void)
{
    struct pollfd wait = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;

    atomic_store(&asleep, true);
    if (!drain_rings() && !atomic_load(&stopping) && !atomic_load(&reopening)) {
        poll(&wait, 1, cn_log_writer_has_folder() ? LOOK_MS : -1);
        if (wait.revents && read(wake_fd, &count, sizeof(count)) < 0)
            return; /* another wake-up has read it */
    }
    atomic_store(&asleep, false);
}

static void *
log_thread(void *ctx)
{
    const struct timespec nap = {0, NAP_MS * 1000000L};

    (void)ctx;
    pthread_setname_np(pthread_self(), "log");
    while (!atomic_load(&stopping)) {
        if (atomic_exchange(&reopening, false))
            cn_log_writer_reopen();
        cn_log_writer_look();
        if (drain_rings())
            nanosleep(&nap, NULL);
        else
            sleep_until_woken();
    }
    drain_rings();
    return NULL;
}

/* --- start and end */

/* Starts the log thread with all signals blocked; the loops handle them. */
static int
start_thread(void)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    rc = pthread_create(&thread, NULL, log_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int
cn_log_files_start(const struct cn_log_options *wanted, struct cn_error *err)
{
    int rc;

    ring_bytes = wanted->ring_bytes;
    atomic_store(&stopping, false);
    if ((rc = cn_log_writer_open(wanted, err)))
        return rc;
    wake_fd = eventfd(0, EFD_CLOEXEC);
    rc = wake_fd < 0 ? errno : start_thread();
    if (rc) {
        if (wake_fd >= 0)
            close(wake_fd);
        cn_log_writer_close();
        return cn_fail_sys(err, CN_E_IO, rc, "cannot start the log thread");
    }
    started = true;
    if (cn_log_writer_has_folder())
        cn_log_set_copy(cn_log_writer_server_fd());
    cn_log_files_join();
    return 0;
}

void
cn_log_files_reopen(void)
{
    if (!started)
        return;
    atomic_store(&reopening, true);
    wake();
}

void
cn_log_files_stop(void)
{
    struct timespec limit;
    unsigned i;

    if (!started)
        return;
    started = false;
    atomic_store(&stopping, true);
    wake();
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += STOP_MS / 1000;
    if (pthread_timedjoin_np(thread, NULL, &limit) != 0) {
        pthread_detach(thread); /* standard output is not being read; the process ends now */
        return;
    }
    cn_log_set_copy(-1);
    cn_log_writer_close();
    close(wake_fd);
    for (i = 0; i < RINGS_MAX; i++) {
        cn_free(rings[i].bytes);
        rings[i].bytes = NULL;
        atomic_store(&rings[i].written, 0);
        atomic_store(&rings[i].read, 0);
    }
    atomic_store(&n_rings, 0);
    own_ring = NULL;
}
