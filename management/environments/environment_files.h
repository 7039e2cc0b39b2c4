/* management/environments/environment_files.h - environments on the disk. File thread.
 *
 * STATE-DIR/environments/ has a folder for each environment, NAME, and for each one that is whole
 * a note DIGEST.whole, whose first line is NAME. The note is written last, by an atomic rename,
 * after the folder was flushed to the disk: a folder without a note is half done. The name of a
 * folder has a random part, so what a killed server left cannot be mistaken for a new one.
 */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENT_FILES_H
#define CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"
#include "management/environments/environment_recipe.h"

/* One whole environment that an earlier server left. */
struct cn_environment_left {
    char digest[CN_ENVIRONMENT_DIGEST_BYTES];
    char *place; /* its folder, absolute */
};

#define CN_ENVIRONMENTS_LEFT_MAX 1000 /* what exceeds it is removed */
struct cn_environments_left {
    struct cn_environment_left items[CN_ENVIRONMENTS_LEFT_MAX];
    uint32_t n;
};

/* Looks for whole environments and removes everything else. The places are to be freed. A folder
 * that is missing has no environments. */
void cn_environment_files_scan(const char *folder, struct cn_environments_left *out);
/* A new folder's path, which does not exist yet, to be freed. `folder` is made. Any thread. */
char *cn_environment_files_place(const char *folder, const char *digest);
/* Flushes the environment to the disk and writes its note. CN_E_IO: there is no note. */
int cn_environment_files_seal(const char *folder, const char *digest, const char *place,
                              struct cn_str recipe, struct cn_error *err);
/* Deletes the note, if it names this place, and then the folder. */
void cn_environment_files_remove(const char *folder, const char *digest, const char *place);
/* The path of the interpreter in an environment, to be freed. Any thread. */
char *cn_environment_files_python(const char *place);

#endif
