/* management/environments/environments_priv.h - the structs of all environments and of one, for the
 * files of this folder only. Loop 0. */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENTS_PRIV_H
#define CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENTS_PRIV_H

#include "core/containers/phase.h"
#include "core/loop/loop_call.h"
#include "core/memory/buf.h"
#include "management/environments/environment_files.h"
#include "management/environments/environments.h"
#include "management/environments/installer.h"

enum cn_environment_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_ENVIRONMENT_IS_##name,
#include "management/environments/environment_phases.def"
#undef CN_PHASE
    CN_ENVIRONMENT_IS_ = CN_PHASE_NONE,
};

struct cn_environments {
    struct cn_loop *loop;
    struct cn_file_thread *files;
    struct cn_file_task scan;
    struct cn_environments_left *left; /* of the scan */
    char *folder;
    uint64_t timeout_ms, keep_ms;
    struct cn_list all;   /* struct cn_environment, also those that are being removed */
    struct cn_list wants; /* struct cn_environment_want that are not answered */
    bool stopping;
};

struct cn_environment {
    struct cn_list link;
    struct cn_environments *owner;
    uint8_t phase; /* enum cn_environment_phase */
    char digest[CN_ENVIRONMENT_DIGEST_BYTES];
    char *place, *python; /* its folder, and the interpreter in it */
    unsigned users;
    uint64_t since_ms; /* when it came into its phase */
    struct cn_installer *installer;
    struct cn_buf recipe;
    struct cn_file_task task;
    struct cn_error err; /* why it could not be made */
    struct cn_timer keep;
};

static inline bool
cn_environment_is(const struct cn_environment *environment, enum cn_environment_phase phase)
{
    return environment->phase == phase;
}

/* --- environment.c --- */

/* Starts an installer for the want's model. `words` say what it is to do, up to a NULL; the rest is
 * as in cn_installer_start(). */
int cn_environment_install(const struct cn_environment_want *want, const char *const *words,
                           void (*on_done)(void *ctx, const struct cn_error *err), void *ctx,
                           struct cn_installer **out, struct cn_error *err);
void cn_environment_to(struct cn_environment *environment, enum cn_environment_phase to);
/* Answers a want with an environment, or with an error if that is NULL. The answer comes in a later
 * turn, so that a want is never answered from inside a call. */
void cn_environment_answer(struct cn_environment_want *want, struct cn_environment *environment,
                           const struct cn_error *err);
/* Puts the name of the model before an error. The first words are TorchServe's. */
void cn_environment_name_model(const struct cn_environment_want *want, const struct cn_error *why,
                               struct cn_error *out);
/* Frees it and what it holds; its folder stays. */
void cn_environment_free(struct cn_environment *environment);
/* Deletes the environment's folder on the file thread, and frees it then. */
void cn_environment_remove(struct cn_environment *environment);
/* Nobody uses the environment: it is kept for a while, and removed then. */
void cn_environment_become_unused(struct cn_environment *environment);
/* Adds an environment in this phase. `place` becomes the environment's. */
struct cn_environment *cn_environment_add(struct cn_environments *environments, const char *digest,
                                          char *place, enum cn_environment_phase phase);
/* Begins to build environments that are QUEUED, as many as may be built together. */
void cn_environments_build_next(struct cn_environments *environments);

#endif
