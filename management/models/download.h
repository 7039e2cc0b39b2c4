/* management/models/download.h - a model's archive from an http(s) URL into the model store.
 * Download threads.
 *
 * Bounded in size and time, within the operator's rules for URLs. It blocks its thread and ends
 * within a second or so when the server stops.
 */
#ifndef CN_MANAGEMENT_MODELS_DOWNLOAD_H
#define CN_MANAGEMENT_MODELS_DOWNLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "management/models/url_rules.h"

/* Filled by the caller, whose it is; borrowed until cn_download_run returns. */
struct cn_download {
    const struct cn_url_rules *rules;
    const char *url, *store; /* the model store's folder */
    const char *name;        /* for the model, or NULL; the caller's */
    uint64_t max_bytes, timeout_ms;
    const atomic_bool *stopping; /* true: give up */
    /* Any thread reads how far it is; total 0: not known. */
    _Atomic uint64_t bytes, total_bytes;
    struct cn_list link; /* the caller's */
};

/* Is it a URL that cn_download_run can fetch? */
bool cn_download_is_url(const char *url);
/* The archive's name in the store: the last part of the URL's path. cn_free() it; NULL with
 * CN_E_DOWNLOAD_FAILED when that is no archive's name. */
char *cn_download_file_name(const char *url, struct cn_error *err);

/* The archive lies at *path, the caller's to cn_free() and delete. CN_E_MODEL_NOT_FOUND: not
 * allowed. CN_E_IO: there is such a file in the store. CN_E_DOWNLOAD_FAILED: all else. */
int cn_download_run(struct cn_download *download, char **path, struct cn_error *err);

/* Once, on the main thread, before any thread may download. Also removes from the store what
 * servers that were killed left half done a day ago or more. NULL: no store. */
void cn_download_begin(const char *store);

#endif
