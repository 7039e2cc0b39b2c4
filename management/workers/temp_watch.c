/* management/workers/temp_watch.c - bounds the bytes in folders for temporary files.
 *
 * One thread looks at all folders, one after the other, without the lock, because a folder may
 * have very many files. The number of entries that it looks at is bounded by the bytes that a
 * folder may have. A watch that was removed is freed by the thread, which may be looking at it.
 *
 * The code of a model may change the folder meanwhile. So folders are opened relative to their
 * parents, and no link is followed. */
#include "management/workers/temp_watch.h"

#include <dirent.h>
#include <fcntl.h>
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
#define ENTRY_MIN_BYTES 4096
#define DEPTH_MAX 64

struct cn_temp_watch {
    struct cn_list link;
    char *folder;
    uint64_t max_bytes;
    struct cn_loop *loop;
    void (*on_full)(void *ctx);
    void *ctx;
    bool told, may_empty, removed; /* under the lock */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    pthread_t thread;
    struct cn_list watches;
    bool runs, ends;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- adding up */

/* Takes the bytes of what is in the folder from *left, and closes the descriptor. False: there are
 * more than that. */
static bool
fits(int folder, unsigned depth, uint64_t *left)
{
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    struct dirent *entry;
    struct stat st;
    bool does = true;

    if (!entries) {
        if (folder >= 0)
            close(folder);
        return true; /* it is gone */
    }
    while (does && (entry = readdir(entries))) {
        uint64_t bytes;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(entries), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
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

/* Looks at one folder. The lock is held before and after, and not while the disk is read. */
static void
look(struct cn_temp_watch *watch)
{
    const bool empties = watch->may_empty;
    bool full = false;

    pthread_mutex_unlock(&all.lock);
    if (empties)
        cn_archive_empty_dir(watch->folder);
    else
        full = cn_temp_watch_is_full(watch->folder, watch->max_bytes);
    pthread_mutex_lock(&all.lock);
    if (watch->removed)
        return;
    if (empties)
        watch->may_empty = watch->told = false;
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
        /* Only this thread removes from the list, and others add at its end. */
        for (node = all.watches.next; node != &all.watches && !all.ends; node = node->next)
            if (!cn_container_of(node, struct cn_temp_watch, link)->removed)
                look(cn_container_of(node, struct cn_temp_watch, link));
        cn_list_for_each_safe(node, next, &all.watches)
            if (cn_container_of(node, struct cn_temp_watch, link)->removed)
                watch_free(cn_container_of(node, struct cn_temp_watch, link));
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += EVERY_S;
        if (!all.ends)
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
                  void (*on_full)(void *ctx), void *ctx)
{
    struct cn_temp_watch *watch = cn_alloc(sizeof *watch);
    bool runs;

    *watch = (struct cn_temp_watch){.folder = cn_strdup(folder),
                                    .max_bytes = max_bytes,
                                    .loop = loop,
                                    .on_full = on_full,
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
    watch->may_empty = true;
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
