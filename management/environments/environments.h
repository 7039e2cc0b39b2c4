/* management/environments/environments.h - environments of Python packages, one for each digest.
 * Loop 0.
 *
 * A model whose archive has a requirements file wants an environment: a venv with these packages,
 * made by the model's interpreter. Models and versions with the same digest (environment_recipe.h)
 * share one. It is made once, by a child process; it stays while a model uses it, and
 * --environment-keep longer, also beyond the end of the server.
 */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENTS_H
#define CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/loop/file_thread.h"
#include "core/loop/loop.h"
#include "management/environments/environment_recipe.h"

struct cn_environment;
struct cn_environments;
struct cn_installer;

struct cn_environments_spec {
    struct cn_loop *loop;
    const char *folder; /* absolute; it need not exist */
    uint64_t timeout_ms, keep_ms;
};
/* Begins to look at what an earlier server left. CN_E_UNAVAILABLE: there is no thread. */
int cn_environments_create(const struct cn_environments_spec *spec, struct cn_environments **out,
                           struct cn_error *err);
/* A drain begins: installers are ended, and whoever waits gets CN_E_DRAINING. Environments stay on
 * the disk. NULL is allowed. */
void cn_environments_stop(struct cn_environments *environments);
/* When no loop runs any more. What still waits is not answered. NULL is allowed. */
void cn_environments_destroy(struct cn_environments *environments);

/* A model that wants an environment, as a member of what waits for it. The strings are borrowed
 * until on_done. */
struct cn_environment_want {
    const char *model, *version;
    const char *dir, *requirements; /* the model's folder, and the file in it */
    const char *python, *package;   /* absolute: the interpreter, and the folder of the package */
    void (*on_done)(struct cn_environment_want *want);

    /* The answer. */
    struct cn_environment *environment; /* NULL: it failed; else released by the caller */
    struct cn_error err;                /* CN_E_INSTALL_FAILED, CN_E_INVALID_MODEL, CN_E_DRAINING */

    /* environments.c's own. */
    struct cn_list link;
    struct cn_environments *owner;
    struct cn_installer *asking; /* asks the interpreter what it is */
    struct cn_file_task task;    /* reads the requirements */
    struct cn_buf recipe;
    char digest[CN_ENVIRONMENT_DIGEST_BYTES];
    struct cn_environment *waits_for;
    bool answered;
};
/* on_done is called once, never from inside. */
void cn_environments_want(struct cn_environments *environments, struct cn_environment_want *want);
/* The caller uses it no longer: its workers have ended. NULL is allowed. */
void cn_environment_release(struct cn_environment *environment);

const char *cn_environment_python(const struct cn_environment *environment);
const char *cn_environment_digest_of(const struct cn_environment *environment);

/* What descriptions show of an environment. Strings are borrowed until the end of this turn. */
struct cn_environment_facts {
    const struct cn_environment *environment;
    const char *digest, *python; /* python: of the environment */
    const char *state; /* "queued", "building", "sealing", "ready", "unused" or "removing" */
    const char *step;  /* what the installer does, or ""  */
    uint64_t for_ms;   /* how long it has been in this state */
};
void cn_environment_facts(const struct cn_environment *environment,
                          struct cn_environment_facts *out);
/* What the model waits for. False: it waits for none. `version` NULL: any. While its interpreter
 * and its requirements are looked at, the state is "looking" and there is no environment. */
bool cn_environments_awaited(const struct cn_environments *environments, const char *model,
                             const char *version, struct cn_environment_facts *out);
/* Calls `fn` for each environment, and `waits` for each model that waits; the oldest first. */
void cn_environments_each(const struct cn_environments *environments,
                          void (*fn)(void *ctx, const struct cn_environment_facts *facts),
                          void (*waits)(void *ctx, const struct cn_environment_want *want,
                                        const struct cn_environment_facts *facts),
                          void *ctx);

#endif
