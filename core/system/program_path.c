/* core/system/program_path.c - finds the files that belong to a program: the worker, the modules.
 * Any thread.
 *
 * In a build folder they lie next to the program; in an installed package the program is in bin/
 * and they are in lib/continuo/. A wheel puts them into libexec/continuo/, because pip --target
 * leaves out the folder lib/ of a wheel's data. The program's own path comes from the kernel and
 * not from argv[0], which its caller chooses. If no place has the file, the path beside the program
 * is returned, so that the message about the missing file names a place that makes sense. */
#include "core/system/program_path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INSTALLED "../lib/continuo/"      /* cmake/ContinuoInstall.cmake */
#define FROM_WHEEL "../libexec/continuo/" /* scripts/server_wheel.py */

int
cn_program_path_of(const char *program, const char *name, char *out, size_t bytes,
                   struct cn_error *err)
{
    static const char *const places[] = {"", INSTALLED, FROM_WHEEL};
    const char *slash = strrchr(program, '/');
    const int folder = slash ? (int)(slash + 1 - program) : 0;

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        int len = snprintf(out, bytes, "%.*s%s%s", folder, program, places[i], name);

        if (len < 0 || (size_t)len >= bytes)
            return cn_fail(err, CN_E_IO, "the path of %s in the folder of %s is too long", name,
                           program);
        if (access(out, F_OK) == 0)
            return 0;
    }
    snprintf(out, bytes, "%.*s%s", folder, program, name);
    return 0;
}

int
cn_program_path(const char *name, char *out, size_t bytes, struct cn_error *err)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (len < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot find the folder of this program");
    self[len] = '\0';
    return cn_program_path_of(self, name, out, bytes, err);
}
