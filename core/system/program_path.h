/* core/system/program_path.h - finds the files that belong to a program: beside it in a build, or
 * in ../lib/continuo or ../libexec/continuo when it is installed. Any thread. */
#ifndef CN_CORE_SYSTEM_PROGRAM_PATH_H
#define CN_CORE_SYSTEM_PROGRAM_PATH_H

#include <stddef.h>

#include "core/errors/error.h"

/* Writes the path of `name` for this program to `out`. If the file is in no place, it is the
 * path beside the program, and opening it will say what is wrong. CN_E_IO: the program's own path
 * is not known or too long. */
int cn_program_path(const char *name, char *out, size_t bytes, struct cn_error *err);
/* Does the same for the program with this path. */
int cn_program_path_of(const char *program, const char *name, char *out, size_t bytes,
                       struct cn_error *err);

#endif
