/* management/pool/temp_watch.c - bounds the bytes in folders for temporary files.
 *
 * One thread looks at all folders, one after the other, without the lock, because a folder may
 * have very many files. The number of entries that it looks at is bounded by the bytes that a
 * folder may have. A watch that was removed is freed by the thread, which may be looking at it.
 *
 * The code of a model may change the folder meanwhile. So folders are opened relative to their
 * parents, and no link is followed. */
#include "management/pool/temp_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "core/containers/list.h"
#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"

#define EVERY_S 1
/* If files are left in a folder that was to be emptied, killing its workers once more will hardly
 * help, so they get this long. */
#define KEPT_S 60
#define ENTRY_MIN_BYTES 4096
#define DEPTH_MAX 64

struct cn_temp_watch {
    struct cn_list link;
    char *folder;
    uint64_t max_bytes;
    struct cn_loop *loop;
    void (*on_full)(void *ctx);
    void (*on_emptied)(void *ctx);
    void *ctx;
    bool told, may_empty, removed; /* under the lock */
    time_t rests_until;            /* the thread's: its files were not deleted, so it is not full */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    pthread_t thread;
    struct cn_list watches;
    bool runs, ends, asked; /* asked: a folder is to be emptied, now */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- adding up */

/* Does the error of the last call count as nothing? An entry may have been deleted or replaced
 * meanwhile, and a server without descriptors learns nothing of the folder. After any other error
 * the folder counts as full: a model may choose modes with which the server cannot look in. */
static bool
is_nothing(void)
{
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EMFILE ||
           errno == ENFILE;
}

/* Takes the bytes of what is in the folder from *left, and closes the descriptor. False: there are
 * more than that, or nobody can tell. */
static bool
fits(int folder, unsigned depth, uint64_t *left)
{
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    struct dirent *entry;
    struct stat st;
    bool does = true;

    if (!entries) {
        does = is_nothing();
        if (folder >= 0)
            close(folder);
        return does;
    }
    while (does && (entry = readdir(entries))) {
        uint64_t bytes;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(entries), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            does = is_nothing();
            continue;
        }
        bytes = (uint64_t)st.st_blocks * 512;
        if (bytes < ENTRY_MIN_BYTES)
            bytes = ENTRY_MIN_BYTES;
        does = bytes <= *left;
        *left -= does ? bytes : 0;
        if (does && S_ISDIR(st.st_mode))
            does =
                depth < DEPTH_MAX && fits(openat(dirfd(entries), entry->d_name,
                                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                                          depth + 1, left);
    }
    closedir(entries);
    return does;
}

bool
cn_temp_watch_is_full(const char *folder, uint64_t max_bytes)
{
    uint64_t left = max_bytes;

    return !fits(open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), 0, &left);
}

/* --- the thread */

static void
watch_free(struct cn_temp_watch *watch)
{
    cn_list_remove(&watch->link);
    cn_free(watch->folder);
    cn_free(watch);
}

static time_t
now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Without the lock. */
static void
empty(struct cn_temp_watch *watch)
{
    char quoted[600];

    cn_archive_empty_dir(watch->folder);
    if (!cn_temp_watch_is_full(watch->folder, watch->max_bytes))
        return;
    watch->rests_until = now_s() + KEPT_S;
    cn_log(CN_LOG_ERROR,
           "event=temporary_files_kept folder=%s max_bytes=%" PRIu64
           " note=\"not enough of them could be deleted: they may be written by a process that has "
           "left its worker; the next look comes in %d s\"",
           cn_log_quote(watch->folder, strlen(watch->folder), quoted, sizeof quoted),
           watch->max_bytes, KEPT_S);
}

/* Looks at one folder. The lock is held before and after, and not while the disk is read. */
static void
look(struct cn_temp_watch *watch)
{
    const bool empties = watch->may_empty;
    bool full = false;

    pthread_mutex_unlock(&all.lock);
    if (empties)
        empty(watch);
    else
        full =
            now_s() >= watch->rests_until && cn_temp_watch_is_full(watch->folder, watch->max_bytes);
    pthread_mutex_lock(&all.lock);
    if (watch->removed)
        return;
    if (empties) {
        watch->may_empty = watch->told = false;
        cn_call_on(watch->loop, watch->on_emptied, watch->ctx);
    }
    if (full && !watch->told) {
        watch->told = true;
        cn_call_on(watch->loop, watch->on_full, watch->ctx);
    }
}

static void *
watch_main(void *ctx)
{
    struct cn_list *node, *next;
    struct timespec until;

    (void)ctx;
    pthread_mutex_lock(&all.lock);
    while (!all.ends) {
        all.asked = false;
        /* Only this thread removes from the list, and others add at its end. */
        for (node = all.watches.next; node != &all.watches && !all.ends; node = node->next)
            if (!cn_container_of(node, struct cn_temp_watch, link)->removed)
                look(cn_container_of(node, struct cn_temp_watch, link));
        cn_list_for_each_safe(node, next, &all.watches)
            if (cn_container_of(node, struct cn_temp_watch, link)->removed)
                watch_free(cn_container_of(node, struct cn_temp_watch, link));
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += EVERY_S;
        if (!all.ends && !all.asked) /* waking up too early does no harm */
            pthread_cond_timedwait(&all.woken, &all.lock, &until);
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

static void
start(void)
{
    pthread_condattr_t attr;

    cn_list_init(&all.watches);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&all.woken, &attr);
    pthread_condattr_destroy(&attr);
    all.ends = false;
    all.runs = pthread_create(&all.thread, NULL, watch_main, NULL) == 0;
    if (all.runs)
        return;
    pthread_cond_destroy(&all.woken);
    cn_log(CN_LOG_ERROR, "event=temporary_files_unbounded reason=\"no thread can be started, so "
                         "nothing looks at them; allow the server more processes\"");
}

/* --- what loops call */

struct cn_temp_watch *
cn_temp_watch_add(const char *folder, uint64_t max_bytes, struct cn_loop *loop,
                  void (*on_full)(void *ctx), void (*on_emptied)(void *ctx), void *ctx)
{
    struct cn_temp_watch *watch = cn_alloc(sizeof *watch);
    bool runs;

    *watch = (struct cn_temp_watch){.folder = cn_strdup(folder),
                                    .max_bytes = max_bytes,
                                    .loop = loop,
                                    .on_full = on_full,
                                    .on_emptied = on_emptied,
                                    .ctx = ctx};
    pthread_mutex_lock(&all.lock);
    if (!all.runs)
        start();
    runs = all.runs;
    if (runs)
        cn_list_push_back(&all.watches, &watch->link);
    pthread_mutex_unlock(&all.lock);
    if (runs)
        return watch;
    cn_free(watch->folder);
    cn_free(watch);
    return NULL;
}

void
cn_temp_watch_empty(struct cn_temp_watch *watch)
{
    pthread_mutex_lock(&all.lock);
    watch->may_empty = all.asked = true;
    pthread_cond_signal(&all.woken);
    pthread_mutex_unlock(&all.lock);
}

void
cn_temp_watch_remove(struct cn_temp_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&all.lock);
    watch->removed = true;
    pthread_mutex_unlock(&all.lock);
}

void
cn_temp_watch_stop(void)
{
    struct cn_list *node, *next;

    pthread_mutex_lock(&all.lock);
    if (!all.runs) {
        pthread_mutex_unlock(&all.lock);
        return;
    }
    all.ends = true;
    pthread_cond_signal(&all.woken);
    pthread_mutex_unlock(&all.lock);
    pthread_join(all.thread, NULL);
    all.runs = false;
    cn_list_for_each_safe(node, next, &all.watches)
        watch_free(cn_container_of(node, struct cn_temp_watch, link));
    pthread_cond_destroy(&all.woken);
}
