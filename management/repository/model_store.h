/* management/repository/model_store.h - where a model's archive is: a name in the model store, or a
 * local path. */
#ifndef CN_MANAGEMENT_REPOSITORY_MODEL_STORE_H
#define CN_MANAGEMENT_REPOSITORY_MODEL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

/* Does the URL begin with file://? NULL does not. Any thread. */
bool cn_model_store_is_file_url(const char *url);

/* Checks that the folder exists and can be read. NULL (no store) is fine. CN_E_CONFIG names it. */
int cn_model_store_check(const char *store, struct cn_error *err);

/* Finds the file or folder that `url` means: a name inside the store (without ".."), an absolute
 * path, or file:// and an absolute path. The caller frees `path` with cn_free(). CN_E_BAD_REQUEST:
 * no url; CN_E_MODEL_NOT_FOUND otherwise, with TorchServe's text. It reads the disk, so it is for
 * the file thread. */
int cn_model_store_resolve(const char *store, const char *url, char **path, struct cn_error *err);

/* The part of cn_model_store_resolve() that does not read the disk: CN_E_BAD_REQUEST without a url,
 * CN_E_MODEL_NOT_FOUND for an empty one or one with "..". */
int cn_model_store_check_url(const char *url, struct cn_error *err);
/* Does the name end like an archive's? */
bool cn_model_store_is_archive(const char *name);

/* Lists the names in the store that may be models, sorted: folders and archives that are not
 * hidden. The caller frees the *count strings and the array `names` with cn_free(). */
int cn_model_store_list(const char *store, char ***names, uint32_t *count, struct cn_error *err);

/* Finds the archive or folder of the store with this name, with or without its ending. The exact
 * name comes first, then the first one in order; NULL: there is none. Free it with cn_free(). */
char *cn_model_store_find(const char *store, const char *name);
/* A number that changes when the file changes, or anything in the folder; 0: it cannot be read. */
uint64_t cn_model_store_stamp(const char *path);

/* The model's name if none was given: the file's name without its ending, with _ in place of all
 * characters but letters, digits and _. Free it with cn_free(). */
char *cn_model_store_stem(const char *path);

#endif
