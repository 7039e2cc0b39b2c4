/* management/models/model_cache.c - gets archives from web servers by way of a folder that keeps
 * them. Download threads.
 *
 * What cn_model_cache_get() does: if the caller names the digest and the archive is in the folder,
 * nobody is asked. Otherwise the web server is asked whether the archive that the URL's note names
 * is still the present one: by ETag and Last-Modified, or, if the server sends neither, by the file
 * URL.sha256. If the server is away, the archive of the note is used, and the log says so. An
 * archive of the folder is used only if its bytes still have its digest.
 *
 * An archive is pinned from the time when somebody wants it until it is released, so that eviction
 * leaves it alone. The lock guards the list of pins, and eviction holds it.
 */
#include "management/models/model_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <sodium/crypto_hash_sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/sign/minisign.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "management/models/model_cache_priv.h"
#include "management/repository/download_signature.h"
#include "management/repository/model_index.h"

#define SHA256_FILE_BYTES_MAX 1024 /* a digest file is one line */
#define READ_BYTES 65536

/* --- texts and files */

char *
cn_model_cache_path(const struct cn_model_cache *cache, const char *first, const char *second)
{
    struct cn_buf path;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s%s%s", cache->dir, first, second ? "/" : "", second ? second : "");
    return cn_buf_take(&path, NULL);
}

static void
digest_text(const unsigned char sum[crypto_hash_sha256_BYTES], char digest[CN_DIGEST_TEXT])
{
    for (size_t i = 0; i < crypto_hash_sha256_BYTES; i++)
        snprintf(digest + 2 * i, 3, "%02x", sum[i]);
}

int
cn_file_digest(const char *path, char digest[CN_DIGEST_TEXT], struct cn_error *err)
{
    unsigned char bytes[READ_BYTES], sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = errno;
    ssize_t n = fd < 0 ? -1 : 0;

    crypto_hash_sha256_init(&state);
    while (fd >= 0 && (n = read(fd, bytes, sizeof bytes)) > 0)
        crypto_hash_sha256_update(&state, bytes, (unsigned long long)n);
    if (fd >= 0 && n < 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return cn_fail_sys(err, CN_E_IO, error, "cannot read the archive %s", path);
    crypto_hash_sha256_final(&state, sum);
    digest_text(sum, digest);
    return 0;
}

/* Does the file have these bytes? One that does not is removed, because it is of no use. */
static bool
is_whole(const char *path, const char *digest)
{
    char found[CN_DIGEST_TEXT], quoted[PATH_MAX];

    if (cn_file_digest(path, found, NULL))
        return false;
    if (strcmp(found, digest) == 0)
        return true;
    cn_log(CN_LOG_WARN, "event=model_cache_damaged file=%s note=\"it is downloaded again\"",
           cn_log_quote(path, strlen(path), quoted, sizeof quoted));
    unlink(path);
    return false;
}

/* --- URLs */

/* Appends a name as a part of a URL: what may not stand there is written as %XX. */
static void
put_escaped(struct cn_buf *out, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.~/";

    for (; *name; name++) {
        if (strchr(plain, *name))
            cn_buf_append(out, name, 1);
        else
            cn_buf_printf(out, "%%%02X", (unsigned char)*name);
    }
}

char *
cn_model_cache_url(const struct cn_model_cache *cache, const char *name)
{
    struct cn_buf url;

    if (!cache->prefix || cn_download_is_url(name))
        return cn_strdup(name);
    cn_buf_init(&url, 0);
    cn_buf_puts(&url, cache->prefix);
    put_escaped(&url, name);
    return cn_buf_take(&url, NULL);
}

/* --- pins */

static struct cn_cached *
pin(struct cn_model_cache *cache, const char *digest, const char *name)
{
    struct cn_cached *cached = cn_alloc(sizeof *cached);

    snprintf(cached->digest, sizeof cached->digest, "%s", digest);
    cached->path = cn_model_cache_path(cache, digest, name);
    pthread_mutex_lock(&cache->lock);
    cn_list_push_back(&cache->pins, &cached->link);
    pthread_mutex_unlock(&cache->lock);
    return cached;
}

void
cn_model_cache_release(struct cn_model_cache *cache, struct cn_cached *cached)
{
    if (!cached)
        return;
    pthread_mutex_lock(&cache->lock);
    cn_list_remove(&cached->link);
    pthread_mutex_unlock(&cache->lock);
    cn_free(cached->path);
    cn_free(cached);
}

/* Pins the archive if it is in the folder and whole; else NULL. */
static struct cn_cached *
find(struct cn_model_cache *cache, const char *digest, const char *name)
{
    struct cn_cached *cached;

    if (!digest[0])
        return NULL;
    cached = pin(cache, digest, name);
    if (is_whole(cached->path, digest)) {
        cn_model_cache_touch(cache, digest);
        return cached;
    }
    cn_model_cache_release(cache, cached);
    return NULL;
}

/* --- asking the web server */

struct fetch {
    struct cn_model_cache *cache;
    const char *url, *name, *wanted; /* wanted: a digest, or NULL */
    struct cn_download *download;
    struct cn_cache_note note; /* what the URL had last; note.digest is "" if nothing is known */
};

static void
fill_in(const struct cn_model_cache *cache, const char *url, uint64_t max_bytes,
        struct cn_download *download)
{
    download->rules = cache->rules;
    download->url = url;
    download->trusted = cache->prefix;
    download->have = NULL;
    download->max_bytes = max_bytes;
    download->timeout_ms = cache->timeout_ms;
    download->stopping = cache->stopping;
    atomic_store_explicit(&download->bytes, 0, memory_order_relaxed);
}

/* Does the digest file of the URL still name the digest of the note? *away: it cannot be asked. */
static bool
digest_file_agrees(struct fetch *fetch, bool *away)
{
    struct cn_download download = {0};
    char *part = cn_model_cache_path(fetch->cache, CN_CACHE_PART "XXXXXX", NULL);
    char text[SHA256_FILE_BYTES_MAX], digest[CN_DIGEST_TEXT];
    struct cn_buf url;
    int fd = mkostemp(part, O_CLOEXEC), rc = -1;
    ssize_t n = 0;

    cn_buf_init(&url, 0);
    cn_buf_printf(&url, "%s.sha256", fetch->url);
    cn_buf_append(&url, "", 1);
    fill_in(fetch->cache, url.data, sizeof text, &download);
    if (fd >= 0)
        rc = cn_download_into(&download, fd, NULL);
    *away = rc != 0 && download.away;
    if (rc == 0)
        n = pread(fd, text, sizeof text, 0);
    if (fd >= 0) {
        close(fd);
        unlink(part);
    }
    cn_free(part);
    cn_buf_fini(&url);
    return n > 0 && cn_digest_parse((struct cn_str){text, (size_t)n}, digest) &&
           strcmp(digest, fetch->note.digest) == 0;
}

static void
say_offline(const struct fetch *fetch, const struct cn_error *err)
{
    char url[1024], reason[CN_ERROR_MESSAGE_MAX];

    cn_log(CN_LOG_WARN,
           "event=model_cache_offline url=%s digest=%s reason=%s note=\"its web server is away, so "
           "the cached archive is used\"",
           cn_log_quote(fetch->url, strlen(fetch->url), url, sizeof url), fetch->note.digest,
           cn_log_quote(err->message, strlen(err->message), reason, sizeof reason));
}

/* Moves a downloaded file into the folder. */
static int
keep(struct fetch *fetch, const char *part, struct cn_cached **out, struct cn_error *err)
{
    struct cn_model_cache *cache = fetch->cache;
    char digest[CN_DIGEST_TEXT], *folder;
    struct cn_cached *cached;
    int rc = cn_file_digest(part, digest, err);

    if (rc)
        return rc;
    if (fetch->wanted && strcmp(digest, fetch->wanted) != 0)
        return cn_fail(err, CN_E_DOWNLOAD_FAILED,
                       "Failed to download archive from: %.600s: its SHA-256 is %s, but %s is "
                       "wanted; the web server has another archive under this name",
                       fetch->url, digest, fetch->wanted);
    cached = pin(cache, digest, fetch->name);
    folder = cn_model_cache_path(cache, digest, NULL);
    if ((mkdir(folder, 0755) < 0 && errno != EEXIST) || rename(part, cached->path) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot keep the archive %s", cached->path);
    cn_free(folder);
    if (rc) {
        cn_model_cache_release(cache, cached);
        return rc;
    }
    snprintf(fetch->note.digest, sizeof fetch->note.digest, "%s", digest);
    fetch->note.stamp = fetch->download->stamp;
    cn_model_cache_write_note(cache, fetch->url, &fetch->note);
    cn_model_cache_touch(cache, digest);
    cn_model_cache_evict(cache);
    *out = cached;
    return 0;
}

/* Downloads the archive, unless `have` is still what the server has. */
static int
download(struct fetch *fetch, struct cn_cached **have, struct cn_error *err)
{
    char *part = cn_model_cache_path(fetch->cache, CN_CACHE_PART "XXXXXX", NULL);
    int fd = mkostemp(part, O_CLOEXEC), rc;

    if (fd < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write to the model cache %s",
                         fetch->cache->dir);
        cn_free(part);
        return rc;
    }
    fetch->download->have = *have ? &fetch->note.stamp : NULL;
    rc = cn_download_into(fetch->download, fd, err);
    fchmod(fd, 0644);
    close(fd);
    if (!rc && !fetch->download->is_same) {
        cn_model_cache_release(fetch->cache, *have);
        *have = NULL;
        rc = keep(fetch, part, have, err);
    }
    unlink(part); /* keep() has moved it away, if all went well */
    cn_free(part);
    return rc;
}

static int
run(struct fetch *fetch, struct cn_cached **out, struct cn_error *err)
{
    struct cn_cached *have = find(fetch->cache, fetch->wanted ? fetch->wanted : "", fetch->name);
    struct cn_error why = {0};
    bool away = false;
    int rc = 0;

    *out = have;
    if (have)
        return 0;
    /* The note's archive does not help if another digest is wanted. */
    if (!fetch->wanted && cn_model_cache_read_note(fetch->cache, fetch->url, &fetch->note))
        have = find(fetch->cache, fetch->note.digest, fetch->name);
    if (have && !fetch->note.stamp.etag[0] && !fetch->note.stamp.modified[0] &&
        !strchr(fetch->url, '?') && digest_file_agrees(fetch, &away)) {
        *out = have;
        return 0;
    }
    rc = download(fetch, &have, &why);
    if (rc && have && (away || fetch->download->away)) {
        say_offline(fetch, &why);
        rc = 0;
    }
    if (rc) {
        cn_model_cache_release(fetch->cache, have);
        if (err)
            *err = why;
        return rc;
    }
    *out = have;
    return 0;
}

void
cn_model_cache_prepare(const struct cn_model_cache *cache, const char *url,
                       struct cn_download *order)
{
    fill_in(cache, url,
            cache->max_bytes < cache->max_download_bytes ? cache->max_bytes
                                                         : cache->max_download_bytes,
            order);
}

/* Gets the signature of an archive of the cache. The one that is there serves while the web server
 * is away. */
static int
get_signature(const struct fetch *fetch, const struct cn_cached *cached, struct cn_error *err)
{
    struct cn_error why = {0};
    struct cn_buf path;
    bool away = false;
    int rc = cn_download_signature(fetch->download, cached->path, &away, &why);

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s" CN_SIGN_ENDING "%c", cached->path, '\0');
    if (rc && away && access(path.data, F_OK) == 0) {
        say_offline(fetch, &why);
        rc = 0;
    }
    if (rc && err)
        *err = why;
    cn_buf_fini(&path);
    return rc;
}

int
cn_model_cache_get(struct cn_model_cache *cache, struct cn_download *order, const char *digest,
                   struct cn_cached **out, struct cn_error *err)
{
    struct fetch fetch = {.cache = cache, .url = order->url, .wanted = digest, .download = order};
    char *name = cn_download_file_name(order->url, err);
    int rc;

    *out = NULL;
    if (!name)
        return CN_E_DOWNLOAD_FAILED;
    fetch.name = name;
    rc = run(&fetch, out, err);
    if (!rc && order->signed_archive && (rc = get_signature(&fetch, *out, err)) != 0) {
        cn_model_cache_release(cache, *out);
        *out = NULL;
    }
    cn_free(name);
    return rc;
}

static int
read_index(const char *path, struct cn_model_index *out, struct cn_error *err)
{
    char *text = cn_try_alloc(CN_MODEL_INDEX_BYTES_MAX + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    size_t len = 0;
    ssize_t n = 1;

    while (text && fd >= 0 && n > 0 && len <= CN_MODEL_INDEX_BYTES_MAX) {
        n = read(fd, text + len, CN_MODEL_INDEX_BYTES_MAX + 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    if (!text || fd < 0 || n < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", path);
    else
        rc = cn_model_index_parse((struct cn_str){text, len}, out, err);
    if (fd >= 0)
        close(fd);
    cn_free(text);
    return rc;
}

int
cn_model_cache_index(struct cn_model_cache *cache, struct cn_model_index *out, struct cn_error *err)
{
    char *url = cn_model_cache_url(cache, CN_MODEL_INDEX_FILE);
    struct cn_download download = {0};
    struct fetch fetch = {
        .cache = cache, .url = url, .name = CN_MODEL_INDEX_FILE, .download = &download};
    struct cn_cached *cached;
    struct cn_error why;
    int rc;

    *out = (struct cn_model_index){0};
    fill_in(cache, url, CN_MODEL_INDEX_BYTES_MAX, &download);
    rc = run(&fetch, &cached, &why);
    if (!rc) {
        rc = read_index(cached->path, out, &why);
        cn_model_cache_release(cache, cached);
    }
    if (rc)
        rc = cn_fail(err, rc,
                     "--models all: the list of the archives in %.500s cannot be used: %.600s; it "
                     "must be a file such as {\"models\": [\"counter.mar\"]}",
                     url, why.message);
    cn_free(url);
    return rc;
}
