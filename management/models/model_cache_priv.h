/* management/models/model_cache_priv.h - the model cache's inside. Download threads. */
#ifndef CN_MANAGEMENT_MODELS_MODEL_CACHE_PRIV_H
#define CN_MANAGEMENT_MODELS_MODEL_CACHE_PRIV_H

#include <pthread.h>

#include "management/models/model_cache.h"

#define CN_CACHE_PART ".continuo-download-" /* what the names of unfinished downloads begin with */

struct cn_model_cache {
    char *dir, *prefix; /* prefix: with a slash at its end; or NULL */
    uint64_t max_bytes, max_download_bytes, timeout_ms;
    const struct cn_url_rules *rules;
    const atomic_bool *stopping;
    pthread_mutex_t lock; /* guards `pins`; eviction holds it */
    struct cn_list pins;  /* struct cn_cached */
};

/* What a URL had when it was asked last. */
struct cn_cache_note {
    char digest[CN_DIGEST_TEXT];
    struct cn_download_stamp stamp;
};

/* DIR/first or DIR/first/second; free it with cn_free(). */
char *cn_model_cache_path(const struct cn_model_cache *cache, const char *first,
                          const char *second);

/* model_cache_files.c */
/* False: there is no note of this URL, or none that can be read. */
bool cn_model_cache_read_note(const struct cn_model_cache *cache, const char *url,
                              struct cn_cache_note *out);
void cn_model_cache_write_note(const struct cn_model_cache *cache, const char *url,
                               const struct cn_cache_note *note);
/* The archive was used just now. */
void cn_model_cache_touch(const struct cn_model_cache *cache, const char *digest);
/* Deletes the least recently used archives until the others fit, and notes beyond a number. */
void cn_model_cache_evict(struct cn_model_cache *cache);

#endif
