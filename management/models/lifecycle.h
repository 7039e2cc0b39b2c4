/* management/models/lifecycle.h - register, scale, unregister, set-default: the events in a model's
 * life.
 *
 * Each of them goes over several loops and the file thread by messages, and answers once, on loop
 * 0. All functions are called on loop 0.
 */
#ifndef CN_MANAGEMENT_MODELS_LIFECYCLE_H
#define CN_MANAGEMENT_MODELS_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "management/management.h"
#include "management/models/model_load.h"

/* The outcome. Borrowed until the callback returns. */
struct cn_lifecycle_result {
    int code;            /* 0, or CN_E_... */
    int http_status;     /* with code 0: 200, 202 or 206 */
    const char *text;    /* TorchServe's text, or the error's */
    const char *version; /* register: the model's version once it is known; else NULL */
    const char *name;    /* register: the model's name once it is known; else NULL */
};
typedef void (*cn_lifecycle_done_fn)(void *ctx, const struct cn_lifecycle_result *result);

struct cn_version;

struct cn_register_call {
    struct cn_model_request request; /* strings are copied */
    /* the SHA-256 that the archive must have, in hexadecimal digits, or NULL; copied */
    const char *digest;
    /* answer when the workers are ready; a failure then undoes the registration */
    bool synchronous;
    bool at_startup; /* synchronous, but a model whose workers fail stays and is tried again */
    bool keep;       /* the same after the start */
};
void cn_lifecycle_register(struct cn_management *management, const struct cn_register_call *call,
                           cn_lifecycle_done_fn done, void *ctx);

struct cn_scale_call {
    const char *name, *version; /* version NULL: the default one */
    uint32_t min, max;
    bool synchronous;
};
void cn_lifecycle_scale(struct cn_management *management, const struct cn_scale_call *call,
                        cn_lifecycle_done_fn done, void *ctx);

void cn_lifecycle_unregister(struct cn_management *management, const char *name,
                             const char *version, cn_lifecycle_done_fn done, void *ctx);

struct cn_default_call {
    const char *name, *version;
    int swap_policy; /* enum cn_swap_policy; -1: the version's own */
    /* deadline of the version that was the default; 0: none, -1: the config's */
    int64_t swap_deadline_ms;
};
void cn_lifecycle_set_default(struct cn_management *management, const struct cn_default_call *call,
                              cn_lifecycle_done_fn done, void *ctx);

/* For cluster-models. Unregisters a version whether or not it is the default one. `everywhere`: all
 * nodes do that, so the sequences that this node has open in a shared store are closed, too. */
void cn_lifecycle_remove(struct cn_management *management, struct cn_version *version,
                         bool everywhere, cn_lifecycle_done_fn done, void *ctx);
/* Undoes a registration; `reason` is what its waiting steps are told. Its sequences stay in the
 * store. */
void cn_lifecycle_undo(struct cn_management *management, struct cn_version *version,
                       const char *reason, cn_lifecycle_done_fn done, void *ctx);
/* The version, which is not the default one any more, goes after this time. */
void cn_lifecycle_retire(struct cn_version *version, uint64_t after_ms);

/* For a drain: takes every version out of service. Each counts as an operation until its workers
 * are gone. */
void cn_lifecycle_close_all(struct cn_management *management);

#endif
