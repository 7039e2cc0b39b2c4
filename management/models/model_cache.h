/* management/models/model_cache.h - archives that were downloaded, kept by their digest.
 *
 * The cache is a folder. DIGEST/NAME is an archive under the SHA-256 of its bytes, and a note for
 * each URL says which digest was there last and how the web server calls that version of it (ETag,
 * Last-Modified). An archive is asked for again only if it has changed, and a model can still be
 * loaded while its web server is away. The least recently used archives go when the cache is full.
 *
 * Calls block for the network and the disk: they are for download threads.
 */
#ifndef CN_MANAGEMENT_MODELS_MODEL_CACHE_H
#define CN_MANAGEMENT_MODELS_MODEL_CACHE_H

#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "management/models/download.h"

#define CN_DIGEST_TEXT 65 /* a SHA-256 in hexadecimal digits, with its final zero */

struct cn_model_cache;
struct cn_model_index;

struct cn_model_cache_spec {
    const char *dir;    /* made if it is missing */
    const char *prefix; /* the http(s) model store, or NULL */
    uint64_t max_bytes; /* of all archives */
    /* for each download, as in struct cn_download */
    const struct cn_url_rules *rules;
    uint64_t max_download_bytes, timeout_ms;
    const atomic_bool *stopping;
};

/* An archive of the cache, which stays there until it is released. */
struct cn_cached {
    struct cn_list link; /* the cache's */
    char *path;
    char digest[CN_DIGEST_TEXT];
};

/* Makes the cache; strings are copied. CN_E_CONFIG: the folder cannot be made. */
int cn_model_cache_create(const struct cn_model_cache_spec *spec, struct cn_model_cache **out,
                          struct cn_error *err);
void cn_model_cache_destroy(struct cn_model_cache *cache);

/* Returns the URL of an archive in the http(s) model store. A name gets the store's URL in front; a
 * whole URL is returned unchanged. Any thread. Free it with cn_free(). */
char *cn_model_cache_url(const struct cn_model_cache *cache, const char *name);

/* Fills in the order for a download of the URL, which is borrowed. Any thread. */
void cn_model_cache_prepare(const struct cn_model_cache *cache, const char *url,
                            struct cn_download *order);
/* Gets the archive of an order, which shows how far the download is. `digest`: the one that the
 * archive must have, or NULL. Errors are those of cn_download_run(). */
int cn_model_cache_get(struct cn_model_cache *cache, struct cn_download *order, const char *digest,
                       struct cn_cached **out, struct cn_error *err);
/* The caller has unpacked the archive. Any thread; NULL is allowed. */
void cn_model_cache_release(struct cn_model_cache *cache, struct cn_cached *cached);
/* Gets and reads the store's index.json (model_index.h). */
int cn_model_cache_index(struct cn_model_cache *cache, struct cn_model_index *out,
                         struct cn_error *err);

/* Writes the SHA-256 of the file's bytes. CN_E_IO: it cannot be read. Any thread that may block. */
int cn_file_digest(const char *path, char digest[CN_DIGEST_TEXT], struct cn_error *err);

#endif
