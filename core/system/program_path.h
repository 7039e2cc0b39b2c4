/* core/system/program_path.h - the files that belong to a program: beside it as it is built, or in
 * ../lib/continuo from there as it is installed. Any thread. */
#ifndef CN_CORE_SYSTEM_PROGRAM_PATH_H
#define CN_CORE_SYSTEM_PROGRAM_PATH_H

#include <stddef.h>

#include "core/errors/error.h"

/* The path of `name` for this program. Where it is in neither place, the one beside the program:
 * who opens it says why it can't. CN_E_IO: the program's own path is not known or too long. */
int cn_program_path(const char *name, char *out, size_t bytes, struct cn_error *err);
/* The same for the program whose path this is. */
int cn_program_path_of(const char *program, const char *name, char *out, size_t bytes,
                       struct cn_error *err);

#endif
