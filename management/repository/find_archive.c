/* management/repository/find_archive.c - finds the archive of a registration on this machine. */
#include "management/repository/find_archive.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "management/models/download.h"
#include "management/models/url_rules.h"
#include "management/repository/model_store.h"

bool
cn_model_store_is_remote(const char *store)
{
    return store && cn_download_is_url(store);
}

/* Returns the absolute path that the URL names, or NULL: it is a name in the model store. */
static const char *
local_path(const char *url)
{
    const char *at = cn_model_store_is_file_url(url) ? url + 7 : url;

    return at && *at == '/' ? at : NULL;
}

/* Is the path below the folder? Neither has "..", which cn_model_store_check_url() refuses. */
static bool
is_below(const char *path, const char *folder)
{
    char *real = folder ? realpath(folder, NULL) : NULL;
    const char *const names[] = {folder, real};
    bool is = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t len = names[i] ? strlen(names[i]) : 0;

        while (len > 1 && names[i][len - 1] == '/')
            len--;
        is |= len > 0 && strncmp(path, names[i], len) == 0 && path[len] == '/';
    }
    free(real);
    return is;
}

/* A client that may register models must not be able to run any file of this machine. */
static int
check_local(const struct cn_archive_wanted *wanted, struct cn_error *err)
{
    const char *path = local_path(wanted->url);

    if (!path || wanted->config->allow_local_models || wanted->is_operators ||
        (cn_model_store_is_file_url(wanted->url) && cn_url_rules_are_set(wanted->rules)) ||
        is_below(path, wanted->config->model_store))
        return 0;
    return cn_fail(err, CN_E_LOCAL_MODEL,
                   "%.600s is outside the model store: put it into the store and register it by "
                   "its name, or start the server with --allow-local-models",
                   wanted->url);
}

/* TorchServe looks in its store for the last part of a URL that it may not download, and calls a
 * missing file:// a failed download. */
static int
resolve(const struct cn_archive_wanted *wanted, char **path, struct cn_error *err)
{
    const struct cn_server_config *config = wanted->config;
    const char *url = wanted->url;
    bool exact = config->dialect == CN_DIALECT_TORCHSERVE && url;
    const char *name = exact && strstr(url, "://") ? strrchr(url, '/') + 1 : "";
    const char *store = cn_model_store_is_remote(config->model_store) ? NULL : config->model_store;
    int rc = CN_E_MODEL_NOT_FOUND;

    if (exact && !cn_model_store_is_file_url(url) && *name && !cn_model_store_check_url(url, err))
        rc = cn_model_store_resolve(store, name, path, err);
    if (rc)
        rc = cn_model_store_resolve(store, url, path, err);
    if (exact && cn_model_store_is_file_url(url) && rc == CN_E_MODEL_NOT_FOUND &&
        strncmp(err->message, "Relative path", 13) != 0)
        rc = cn_fail(err, CN_E_DOWNLOAD_FAILED, "Failed to download archive from: %.600s", url);
    return rc;
}

int
cn_find_archive(const struct cn_archive_wanted *wanted, char **path, struct cn_error *err)
{
    int rc = check_local(wanted, err);

    return rc ? rc : resolve(wanted, path, err);
}

int
cn_archive_digest(const struct cn_archive_wanted *wanted, const char *path,
                  char digest[CN_DIGEST_TEXT], struct cn_error *err)
{
    struct stat st;
    int rc;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "%.600s is a folder, and with cluster-models a model must be an archive, so "
                       "that the nodes can compare theirs: pack it with continuo-archiver",
                       wanted->url);
    if ((rc = cn_file_digest(path, digest, err)) != 0 || !wanted->digest ||
        strcmp(digest, wanted->digest) == 0)
        return rc;
    return cn_fail(err, CN_E_INVALID_MODEL,
                   "the archive %.300s of this node has the SHA-256 %s, but the model was "
                   "registered from one with %s: copy that archive to this node",
                   wanted->url, digest, wanted->digest);
}
