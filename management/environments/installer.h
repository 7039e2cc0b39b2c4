/* management/environments/installer.h - runs python/environment.py with a model's interpreter. Loop
 * 0.
 *
 * The installer is a process of its own, so no loop waits for it. It tells its progress over a
 * socket, and what it prints goes to the log. Its time is bounded. When it ends, for whatever
 * reason, everything that it has started is killed too.
 */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_INSTALLER_H
#define CN_MANAGEMENT_ENVIRONMENTS_INSTALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"

struct cn_installer;

struct cn_installer_spec {
    struct cn_loop *loop;
    const char *python, *package; /* absolute: the interpreter, and the folder of environment.py */
    const char *dir;              /* its working folder: the model's */
    const char *label;            /* "average/1.0", for ps and the log */
    const char *const *words;     /* what it is to do, up to a NULL */
    uint64_t timeout_ms;
    /* Called once, never from inside a function of this header, unless the installer is destroyed
     * before. `err` NULL: it succeeded. */
    void (*on_done)(void *ctx, const struct cn_error *err);
    void *ctx;
};

/* Starts an installer. The strings are borrowed only during the call. On failure there is none:
 * CN_E_INSTALL_FAILED. */
int cn_installer_start(const struct cn_installer_spec *spec, struct cn_installer **out,
                       struct cn_error *err);
/* Ends the installer, if it still runs, and frees it. NULL is allowed. */
void cn_installer_destroy(struct cn_installer *installer);

/* What it does, in pip's words; "" at the beginning. */
const char *cn_installer_step(const struct cn_installer *installer);
/* What the interpreter said of itself; "" if it has said nothing. */
const char *cn_installer_identity(const struct cn_installer *installer);
/* The package that could not be installed; "" if none was named. */
const char *cn_installer_package(const struct cn_installer *installer);

#endif
