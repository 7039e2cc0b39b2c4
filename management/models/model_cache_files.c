/* management/models/model_cache_files.c - the folder of the model cache: its notes, and what is
 * deleted when it is full. Download threads; begin and end on the main thread.
 *
 * A note is a small JSON file named after the SHA-256 of its URL. One that is lost or damaged costs
 * a download, so notes are not flushed to the disk.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium/crypto_hash_sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "management/models/model_cache_priv.h"
#include "management/repository/model_index.h"

#define NOTE_ENDING ".url"
#define NOTES_MAX 4096
#define PART_OLD_S (24 * 60 * 60)

/* --- notes */

static char *
note_path(const struct cn_model_cache *cache, const char *url)
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    char name[2 * sizeof sum + sizeof NOTE_ENDING];

    crypto_hash_sha256(sum, (const unsigned char *)url, strlen(url));
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(name + 2 * i, 3, "%02x", sum[i]);
    memcpy(name + 2 * sizeof sum, NOTE_ENDING, sizeof NOTE_ENDING);
    return cn_model_cache_path(cache, name, NULL);
}

static void
take_text(const json_t *root, const char *key, char *out, size_t max)
{
    const char *text = json_string_value(json_object_get(root, key));

    if (text && strlen(text) < max)
        snprintf(out, max, "%s", text);
}

bool
cn_model_cache_read_note(const struct cn_model_cache *cache, const char *url,
                         struct cn_cache_note *out)
{
    char *path = note_path(cache, url);
    json_t *root = json_load_file(path, 0, NULL);
    const char *of = json_string_value(json_object_get(root, "url"));
    const char *digest = json_string_value(json_object_get(root, "digest"));
    bool good =
        of && strcmp(of, url) == 0 && digest && cn_digest_parse(cn_str_from(digest), out->digest);

    if (good) {
        take_text(root, "etag", out->stamp.etag, sizeof out->stamp.etag);
        take_text(root, "modified", out->stamp.modified, sizeof out->stamp.modified);
    }
    json_decref(root);
    cn_free(path);
    return good;
}

void
cn_model_cache_write_note(const struct cn_model_cache *cache, const char *url,
                          const struct cn_cache_note *note)
{
    char *path = note_path(cache, url);
    char *part = cn_model_cache_path(cache, CN_CACHE_PART "XXXXXX", NULL);
    json_t *root = json_pack("{ss ss ss* ss*}", "url", url, "digest", note->digest, "etag",
                             note->stamp.etag[0] ? note->stamp.etag : NULL, "modified",
                             note->stamp.modified[0] ? note->stamp.modified : NULL);
    int fd = mkostemp(part, O_CLOEXEC);

    /* json_pack fails for an ETag that is not UTF-8; then there is no note. */
    if (fd >= 0 && (!root || json_dumpfd(root, fd, JSON_COMPACT) || rename(part, path) < 0))
        unlink(part);
    if (fd >= 0)
        close(fd);
    json_decref(root);
    cn_free(part);
    cn_free(path);
}

void
cn_model_cache_touch(const struct cn_model_cache *cache, const char *digest)
{
    char *path = cn_model_cache_path(cache, digest, NULL);

    utimensat(AT_FDCWD, path, NULL, 0);
    cn_free(path);
}

/* --- eviction */

struct entry {
    char name[CN_DIGEST_TEXT];
    struct timespec used;
    uint64_t bytes;
    bool is_note;
};

struct listing {
    struct entry *entries;
    size_t n, room;
    uint64_t bytes;
    size_t notes;
};

/* The bytes of a folder's files; with `remove` they are deleted, too, and the folder. */
static uint64_t
walk_folder(int dir_fd, const char *name, bool remove)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct stat st;
    uint64_t bytes = 0;

    while (dir && (entry = readdir(dir))) {
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        bytes += (uint64_t)st.st_size;
        if (remove)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    if (remove)
        unlinkat(dir_fd, name, AT_REMOVEDIR);
    return bytes;
}

static void
list_entry(struct listing *listing, int dir_fd, const char *name)
{
    struct entry *more, found = {0};
    char digest[CN_DIGEST_TEXT];
    struct stat st;

    if (!cn_digest_parse((struct cn_str){name, strnlen(name, CN_DIGEST_TEXT - 1)}, digest) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    memcpy(found.name, digest, sizeof digest);
    found.used = st.st_mtim;
    found.is_note = strcmp(name + CN_DIGEST_TEXT - 1, NOTE_ENDING) == 0;
    if (found.is_note != (S_ISREG(st.st_mode) != 0))
        return;
    found.bytes = found.is_note ? 0 : walk_folder(dir_fd, name, false);
    if (listing->n == listing->room) {
        more = cn_try_realloc(listing->entries, (listing->room * 2 + 64) * sizeof *more);
        if (!more)
            return;
        listing->entries = more;
        listing->room = listing->room * 2 + 64;
    }
    listing->entries[listing->n++] = found;
    listing->bytes += found.bytes;
    listing->notes += found.is_note;
}

static int
compare_used(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used;
    const struct timespec *y = &((const struct entry *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool
is_pinned(const struct cn_model_cache *cache, const char *digest)
{
    const struct cn_list *node;

    cn_list_for_each(node, &cache->pins)
        if (strcmp(cn_container_of(node, struct cn_cached, link)->digest, digest) == 0)
            return true;
    return false;
}

/* Deletes one entry, if there is too much of its kind. */
static void
evict_entry(const struct cn_model_cache *cache, struct listing *listing, int dir_fd,
            const struct entry *entry)
{
    char name[CN_DIGEST_TEXT + sizeof NOTE_ENDING];

    if (entry->is_note && listing->notes > NOTES_MAX) {
        snprintf(name, sizeof name, "%s" NOTE_ENDING, entry->name);
        unlinkat(dir_fd, name, 0);
        listing->notes--;
    } else if (!entry->is_note && listing->bytes > cache->max_bytes &&
               !is_pinned(cache, entry->name)) {
        listing->bytes -= walk_folder(dir_fd, entry->name, true);
        cn_log(CN_LOG_INFO, "event=model_cache_evicted digest=%s bytes=%llu", entry->name,
               (unsigned long long)entry->bytes);
    }
}

void
cn_model_cache_evict(struct cn_model_cache *cache)
{
    struct listing listing = {0};
    struct dirent *entry;
    DIR *dir;

    pthread_mutex_lock(&cache->lock);
    dir = opendir(cache->dir);
    while (dir && (entry = readdir(dir)))
        list_entry(&listing, dirfd(dir), entry->d_name);
    if (listing.n)
        qsort(listing.entries, listing.n, sizeof *listing.entries, compare_used);
    for (size_t i = 0; i < listing.n; i++)
        evict_entry(cache, &listing, dirfd(dir), &listing.entries[i]);
    if (dir)
        closedir(dir);
    pthread_mutex_unlock(&cache->lock);
    cn_free(listing.entries);
}

/* --- begin and end */

/* Deletes what a server that was killed left half done a day ago or earlier. */
static void
remove_old_parts(const struct cn_model_cache *cache)
{
    DIR *dir = opendir(cache->dir);
    struct dirent *entry;
    struct stat st;

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, CN_CACHE_PART, strlen(CN_CACHE_PART)) == 0 &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime + PART_OLD_S < time(NULL))
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}

int
cn_model_cache_create(const struct cn_model_cache_spec *spec, struct cn_model_cache **out,
                      struct cn_error *err)
{
    struct cn_model_cache *cache;
    struct cn_buf prefix;

    if (mkdir(spec->dir, 0755) < 0 && errno != EEXIST)
        return cn_fail_sys(err, CN_E_CONFIG, errno,
                           "cannot make the folder of the model cache %s (model-cache)", spec->dir);
    if (access(spec->dir, R_OK | W_OK | X_OK) < 0)
        return cn_fail_sys(err, CN_E_CONFIG, errno,
                           "cannot use the folder of the model cache %s (model-cache)", spec->dir);
    cache = cn_alloc(sizeof *cache);
    cache->dir = cn_strdup(spec->dir);
    if (spec->prefix) {
        cn_buf_init(&prefix, 0);
        cn_buf_puts(&prefix, spec->prefix);
        if (spec->prefix[strlen(spec->prefix) - 1] != '/')
            cn_buf_puts(&prefix, "/");
        cache->prefix = cn_buf_take(&prefix, NULL);
    }
    cache->max_bytes = spec->max_bytes;
    cache->max_download_bytes = spec->max_download_bytes;
    cache->timeout_ms = spec->timeout_ms;
    cache->rules = spec->rules;
    cache->stopping = spec->stopping;
    pthread_mutex_init(&cache->lock, NULL);
    cn_list_init(&cache->pins);
    remove_old_parts(cache);
    *out = cache;
    return 0;
}

void
cn_model_cache_destroy(struct cn_model_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_destroy(&cache->lock);
    cn_free(cache->dir);
    cn_free(cache->prefix);
    cn_free(cache);
}
