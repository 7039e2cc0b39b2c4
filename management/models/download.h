/* management/models/download.h - downloads a model's archive from an http(s) URL into the model
 * store. Download threads.
 *
 * A download is bounded in size and time and must obey the operator's rules for URLs. It blocks its
 * thread, and it ends within about a second when the server stops.
 */
#ifndef CN_MANAGEMENT_MODELS_DOWNLOAD_H
#define CN_MANAGEMENT_MODELS_DOWNLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "management/models/url_rules.h"

#define CN_DOWNLOAD_ETAG_MAX 256
#define CN_DOWNLOAD_DATE_MAX 64

/* The marks by which a web server recognises the version of a file that a client has. An empty one
 * means that the server sent none. */
struct cn_download_stamp {
    char etag[CN_DOWNLOAD_ETAG_MAX], modified[CN_DOWNLOAD_DATE_MAX];
};

/* The caller fills it, owns it, and keeps it in place until the download returns. */
struct cn_download {
    const struct cn_url_rules *rules;
    const char *url, *store; /* the model store's folder; only for cn_download_run() */
    const char *name;        /* the model's name, or NULL; only for the caller */
    /* URLs that begin with it are the operator's: they need no rule, and may lead to private
     * addresses and redirect to each other. It ends with a slash; or NULL. */
    const char *trusted;
    const struct cn_download_stamp *have; /* what the caller has already, or NULL */
    bool signed_archive;                  /* its signature is wanted, too (download_signature.h) */
    uint64_t max_bytes, timeout_ms;
    const atomic_bool *stopping; /* true: give up */
    /* Results: what the server said of the file; whether the caller has it already (nothing was
     * sent); and after a failure, whether the server is away, so that a later attempt may do. */
    struct cn_download_stamp stamp;
    bool is_same, away;
    /* Progress, which any thread may read; total 0: not known. */
    _Atomic uint64_t bytes, total_bytes;
    struct cn_list link; /* the caller's */
};

/* Is it a URL that cn_download_run() can download? */
bool cn_download_is_url(const char *url);
/* The archive's name in the store, which is the last part of the URL's path; free it with
 * cn_free(). NULL with CN_E_DOWNLOAD_FAILED: that part is not the name of an archive. */
char *cn_download_file_name(const char *url, struct cn_error *err);

/* Downloads the archive to *path, which the caller frees with cn_free() and deletes with
 * cn_download_remove(). CN_E_UNTRUSTED: its signature cannot be had.
 * CN_E_MODEL_NOT_FOUND: the rules forbid the URL. CN_E_IO: the store has such a file.
 * CN_E_DOWNLOAD_FAILED: all else. */
int cn_download_run(struct cn_download *download, char **path, struct cn_error *err);
/* Downloads into an open file of the caller's, which stays open. The errors are those of
 * cn_download_run(). */
int cn_download_into(struct cn_download *download, int fd, struct cn_error *err);

/* Call it once on the main thread before any download. It also removes what killed servers left
 * half done in the store a day ago or earlier. `store` NULL: there is no store. */
void cn_download_begin(const char *store);

#endif
