/* management/repository/find_archive.h - finds the archive of a registration on this machine, and
 * refuses a file that the caller may not register. It reads the disk: file thread.
 */
#ifndef CN_MANAGEMENT_REPOSITORY_FIND_ARCHIVE_H
#define CN_MANAGEMENT_REPOSITORY_FIND_ARCHIVE_H

#include <stdbool.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"
#include "management/models/model_cache.h"

struct cn_url_rules;

/* What a registration asks for. Everything is borrowed for the call. */
struct cn_archive_wanted {
    const struct cn_server_config *config;
    const struct cn_url_rules *rules;
    const char *url;    /* a name in the model store, an absolute path or file://; NULL: none */
    const char *digest; /* the SHA-256 that the archive must have; NULL: any */
    bool is_operators;  /* the operator or the other nodes want it, so it may lie anywhere */
};

/* Is the model store a web server? `store` may be NULL. Any thread. */
bool cn_model_store_is_remote(const char *store);

/* Finds the file or folder; the caller frees `path` with cn_free(). CN_E_LOCAL_MODEL: the caller
 * may not register this file. CN_E_BAD_REQUEST, CN_E_MODEL_NOT_FOUND and CN_E_DOWNLOAD_FAILED say
 * what TorchServe says. */
int cn_find_archive(const struct cn_archive_wanted *wanted, char **path, struct cn_error *err);

/* Computes the digest of what was found, and compares it with the wanted one. CN_E_BAD_REQUEST: it
 * is a folder, which has none. CN_E_INVALID_MODEL: it is another archive. */
int cn_archive_digest(const struct cn_archive_wanted *wanted, const char *path,
                      char digest[CN_DIGEST_TEXT], struct cn_error *err);

#endif
