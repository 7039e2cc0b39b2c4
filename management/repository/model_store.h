/* management/repository/model_store.h - where a model's archive is: a name in the model store, or a
 * local path. */
#ifndef CN_MANAGEMENT_REPOSITORY_MODEL_STORE_H
#define CN_MANAGEMENT_REPOSITORY_MODEL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

/* Is there such a folder, and may we read it? NULL (no store) is fine. CN_E_CONFIG names it. */
int cn_model_store_check(const char *store, struct cn_error *err);

/* The file or folder that `url` means: a name inside the store (no ".."), an absolute path, or
 * file:// and an absolute path. `path` is cn_free()d by the caller. CN_E_BAD_REQUEST without a url,
 * CN_E_MODEL_NOT_FOUND otherwise, with TorchServe's words. Looks at the disk: file thread. */
int cn_model_store_resolve(const char *store, const char *url, char **path, struct cn_error *err);

/* The part of it that looks at no disk: CN_E_BAD_REQUEST without a url, CN_E_MODEL_NOT_FOUND for an
 * empty one or one that climbs. */
int cn_model_store_check_url(const char *url, struct cn_error *err);
/* Does the name end as an archive's? */
bool cn_model_store_is_archive(const char *name);

/* Names in the store that may be models, sorted: folders and archives that aren't hidden. `names`:
 * *count strings, all cn_free()d by the caller with the array. For `--models all`. */
int cn_model_store_list(const char *store, char ***names, uint32_t *count, struct cn_error *err);

/* The name of an archive or folder of the store that is called so, with or without its ending (the
 * exact name wins, then the first one); NULL: none. cn_free() it. */
char *cn_model_store_find(const char *store, const char *name);
/* A number that changes when the file changes, or anything in the folder; 0: it can't be read. */
uint64_t cn_model_store_stamp(const char *path);

/* The model's name where nobody gave it one: the file's name without its ending, characters that
 * are no letters, digits or _ replaced by _ . cn_free() it. */
char *cn_model_store_stem(const char *path);

#endif
