/* core/log/log_files.c - ring buffers from the loops to a thread that writes, rotates and opens the
 * log files.
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
 * order, one of the two sees the other.
 *
 * Lines for one file are collected in a batch and written with one call. If a write is cut in the
 * middle of a line, because the disk is full, the next batch begins with a line end. Lost lines are
 * counted for each file, and the reason is logged once until a write succeeds again.
 *
 * ts_log.log is different: cn_log writes to it directly, from any thread, through a descriptor
 * whose number never changes. The log thread only looks at its size once a second, and replaces the
 * file behind that number (dup3) when it is too large. */
#include "core/log/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define RINGS_MAX 128 /* the loops and some other threads */
#define LINE_BYTES_MAX 8192
#define NAP_MS 10
#define LOOK_MS 1000 /* how soon a large ts_log.log, which other threads write, is noticed */
#define STOP_MS 2000
#define BATCH_BYTES (256u * 1024) /* the most that one write(2) gets */
#define PATH_BYTES 1024

/* A line in a ring: u32 length, u8 file, then its bytes. It may go round the end of the ring at any
 * byte. */
#define HEAD_BYTES 5

struct ring {
    char *bytes;
    uint64_t size; /* a power of two */
    _Atomic uint64_t written, read;
};

struct file {
    int fd;
    uint64_t bytes; /* the size of the file */
    bool torn;      /* the last write was cut in the middle of a line */
    bool failing;   /* the failure was logged already */
    /* the disk had no room for the file: fd is /dev/null, and opening it is tried again */
    bool missing;
    struct cn_buf batch;
    uint64_t lines; /* lines in `batch` */
};

static const char *const names[CN_N_LOG_FILES] = {"ts_log.log", "model_log.log", "access_log.log",
                                                  "ts_metrics.log", "model_metrics.log"};
static const char *const words[CN_N_LOG_FILES] = {"server", "model", "access", "metrics",
                                                  "model_metrics"};

/* Set by cn_log_files_start, before there are other threads. */
static struct cn_log_options options;
/* either both or neither of them is empty */
static char dir[PATH_BYTES - 64], metrics_dir[PATH_BYTES - 64];
static bool started;
static pthread_t thread;
static int wake_fd;

/* Any thread. */
static struct ring rings[RINGS_MAX];
static atomic_uint n_rings;
static atomic_bool asleep, stopping, reopening;
static _Atomic uint64_t dropped[CN_N_LOG_FILES];
static _Thread_local struct ring *own_ring;

/* Used by the log thread only. */
static struct file files[CN_N_LOG_FILES];

const char *
cn_log_file_word(enum cn_log_file file)
{
    return words[file];
}

uint64_t
cn_log_files_dropped(enum cn_log_file file)
{
    return atomic_load_explicit(&dropped[file], memory_order_relaxed);
}

static void
drop(enum cn_log_file file, uint64_t lines)
{
    atomic_fetch_add_explicit(&dropped[file], lines, memory_order_relaxed); /* this is rare */
}

void
cn_log_files_lost(enum cn_log_file file)
{
    drop(file, 1);
}

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
    while (size < options.ring_bytes)
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
            drop(file, 1);
        return;
    }
    at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (ring->size - (at - atomic_load_explicit(&ring->read, memory_order_acquire)) <
        HEAD_BYTES + len) {
        drop(file, 1);
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

/* --- files; used on the log thread, and on the main thread before and after it */

static void
path_of(enum cn_log_file file, unsigned generation, char out[PATH_BYTES])
{
    const char *in = file >= CN_LOG_METRICS ? metrics_dir : dir;

    if (generation)
        snprintf(out, PATH_BYTES, "%s/%s.%u", in, names[file], generation);
    else
        snprintf(out, PATH_BYTES, "%s/%s", in, names[file]);
}

/* Makes the folder with its parents, as TorchServe's log library does. Returns 0 or the errno. */
static int
make_folder(const char *path, struct cn_error *err)
{
    char part[PATH_BYTES];
    size_t len = strlen(path), i;

    for (i = 1; i <= len; i++) {
        int why;

        if (path[i] != '/' && path[i] != '\0')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (mkdir(part, 0755) == 0 || (why = errno) == EEXIST)
            continue;
        cn_fail_sys(err, CN_E_IO, why, "cannot make the folder %s (log-dir)", part);
        return why;
    }
    return 0;
}

/* Opens a file. The server's log keeps the number of its descriptor, because other threads write to
 * it. Returns 0 or the errno. */
static int
open_file(enum cn_log_file which, struct cn_error *err)
{
    struct file *file = &files[which];
    char path[PATH_BYTES];
    struct stat about;
    int fd, why;

    path_of(which, 0, path);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        why = errno;
        cn_fail_sys(err, CN_E_IO, why, "cannot open the log file %s (log-dir)", path);
        return why;
    }
    file->bytes = fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
    if (file->fd >= 0) {
        dup3(fd, file->fd, O_CLOEXEC);
        close(fd);
    } else {
        file->fd = fd;
    }
    return 0;
}

static void
tell_failing(enum cn_log_file which, const char *why)
{
    if (!files[which].failing)
        cn_log(CN_LOG_WARN, "event=log_failing log=%s why=\"%s\" lines=dropped", words[which], why);
    files[which].failing = true;
}

static int
open_in_folder(enum cn_log_file which, struct cn_error *err)
{
    int why = make_folder(which >= CN_LOG_METRICS ? metrics_dir : dir, err);

    return why ? why : open_file(which, err);
}

static void
open_again(enum cn_log_file which)
{
    struct file *file = &files[which];
    struct cn_error err;

    if (file->missing ? open_in_folder(which, &err) : open_file(which, &err))
        tell_failing(which, err.message); /* the old file stays in use */
    else
        file->missing = false;
}

/* Opens a file at the start. If the disk has no room for it, lines are lost, as on a disk that
 * becomes full later. */
static int
open_first(enum cn_log_file which, struct cn_error *err)
{
    int why = open_in_folder(which, err);

    if (why != ENOSPC && why != EDQUOT)
        return why ? CN_E_IO : 0;
    tell_failing(which, err->message);
    files[which].missing = true;
    files[which].fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return files[which].fd < 0 ? cn_fail_sys(err, CN_E_IO, errno, "cannot open /dev/null") : 0;
}

/* Moves NAME.1 to NAME.2 and so on, then NAME to NAME.1, and opens a new NAME. With keep 0 the file
 * is deleted instead. */
static void
rotate(enum cn_log_file which)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    unsigned i;

    for (i = options.keep; i > 0; i--) {
        path_of(which, i - 1, from);
        path_of(which, i, to);
        rename(from, to); /* older files need not be there yet */
    }
    if (options.keep == 0) {
        path_of(which, 0, from);
        unlink(from);
    }
    open_again(which);
}

static bool
is_too_large(const struct file *file, uint64_t more)
{
    return dir[0] && options.file_bytes && file->bytes > 0 &&
           file->bytes + more > options.file_bytes;
}

/* Ends the line in whose middle the last write was cut, so that the next line begins properly. */
static void
mend(struct file *file)
{
    if (file->torn && write(file->fd, "\n", 1) == 1)
        file->torn = false;
}

static void
write_batch(enum cn_log_file which)
{
    struct file *file = &files[which];
    struct cn_buf *batch = &file->batch;
    ssize_t n;

    if (batch->len == 0)
        return;
    if (file->missing)
        open_again(which);
    if (is_too_large(file, batch->len))
        rotate(which);
    mend(file);
    errno = ENOSPC; /* the reason if the file is missing */
    do
        n = file->missing ? -1 : write(file->fd, batch->data, batch->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)batch->len) {
        file->failing = false;
        file->bytes += batch->len;
    } else {
        uint64_t lost = file->lines;
        ssize_t i;

        for (i = 0; i < n; i++)
            lost -= batch->data[i] == '\n';
        tell_failing(which, n < 0 ? strerror(errno) : "no space left");
        drop(which, lost);
        if (n > 0) {
            file->bytes += (uint64_t)n;
            file->torn = batch->data[n - 1] != '\n';
        }
    }
    file->lines = 0;
    cn_buf_reset(batch);
}

static void
take_line(struct ring *ring, uint64_t at, uint32_t *len)
{
    char head[HEAD_BYTES], line[LINE_BYTES_MAX];
    enum cn_log_file which;
    struct file *file;

    copy_out(ring, at, head, HEAD_BYTES);
    memcpy(len, head, sizeof(*len));
    which = (enum cn_log_file)head[4];
    copy_out(ring, at + HEAD_BYTES, line, *len);
    file = &files[which];
    if (file->batch.len + *len > BATCH_BYTES)
        write_batch(which);
    if (cn_buf_append(&file->batch, line, *len))
        drop(which, 1);
    else
        file->lines++;
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
    for (i = 0; i < CN_N_LOG_FILES; i++)
        write_batch((enum cn_log_file)i);
    return any;
}

static void
look_at_server_log(void)
{
    struct stat about;

    if (files[CN_LOG_SERVER].missing)
        open_again(CN_LOG_SERVER);
    if (!dir[0] || fstat(files[CN_LOG_SERVER].fd, &about) < 0)
        return;
    files[CN_LOG_SERVER].bytes = (uint64_t)about.st_size;
    if (is_too_large(&files[CN_LOG_SERVER], 0))
        rotate(CN_LOG_SERVER);
}

static void
reopen_all(void)
{
    for (unsigned i = 0; dir[0] && i < CN_N_LOG_FILES; i++)
        open_again((enum cn_log_file)i);
}

static void
sleep_until_woken(void)
{
    struct pollfd wait = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;

    atomic_store(&asleep, true);
    if (!drain_rings() && !atomic_load(&stopping) && !atomic_load(&reopening)) {
        poll(&wait, 1, dir[0] ? LOOK_MS : -1);
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
            reopen_all();
        look_at_server_log();
        if (drain_rings())
            nanosleep(&nap, NULL);
        else
            sleep_until_woken();
    }
    drain_rings();
    return NULL;
}

/* --- start and end */

static int
open_all(struct cn_error *err)
{
    int rc = 0;
    unsigned i;

    for (i = 0; i < CN_N_LOG_FILES; i++) {
        files[i] = (struct file){.fd = -1};
        cn_buf_init(&files[i].batch, 0);
    }
    if (!dir[0]) {
        files[CN_LOG_SERVER].fd = files[CN_LOG_MODEL].fd = STDERR_FILENO;
        files[CN_LOG_ACCESS].fd = files[CN_LOG_METRICS].fd = files[CN_LOG_MODEL_METRICS].fd =
            STDOUT_FILENO;
        return 0;
    }
    for (i = 0; i < CN_N_LOG_FILES && !rc; i++)
        rc = open_first((enum cn_log_file)i, err);
    return rc;
}

static void
close_all(void)
{
    for (unsigned i = 0; i < CN_N_LOG_FILES; i++) {
        if (dir[0] && files[i].fd >= 0)
            close(files[i].fd);
        cn_buf_fini(&files[i].batch);
    }
}

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

    options = *wanted;
    if (wanted->metrics_dir && !wanted->dir)
        return cn_fail(err, CN_E_CONFIG, "metrics-log-dir needs log-dir");
    if ((wanted->dir && strlen(wanted->dir) >= sizeof(dir)) ||
        (wanted->metrics_dir && strlen(wanted->metrics_dir) >= sizeof(metrics_dir)))
        return cn_fail(err, CN_E_CONFIG, "log-dir or metrics-log-dir is longer than %zu bytes",
                       sizeof(dir) - 1);
    snprintf(dir, sizeof(dir), "%s", wanted->dir ? wanted->dir : "");
    snprintf(metrics_dir, sizeof(metrics_dir), "%s",
             wanted->metrics_dir ? wanted->metrics_dir : dir);
    atomic_store(&stopping, false);
    if ((rc = open_all(err))) {
        close_all();
        return rc;
    }
    wake_fd = eventfd(0, EFD_CLOEXEC);
    rc = wake_fd < 0 ? errno : start_thread();
    if (rc) {
        if (wake_fd >= 0)
            close(wake_fd);
        close_all();
        return cn_fail_sys(err, CN_E_IO, rc, "cannot start the log thread");
    }
    started = true;
    if (dir[0])
        cn_log_set_copy(files[CN_LOG_SERVER].fd);
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
    close_all();
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
