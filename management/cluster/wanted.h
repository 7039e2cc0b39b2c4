/* management/cluster/wanted.h - the set of models that all nodes are to serve, and how a change of
 * it is applied. No state, any thread.
 *
 * The set is kept in the shared store as JSON:
 * {"layout": 1, "models": [{"name": "counter", "version": "1.0", "url": "counter.mar", ...}]}
 * A set with a newer layout is refused. In a set with this layout, members that this version of
 * Continuo does not know are skipped.
 */
#ifndef CN_MANAGEMENT_CLUSTER_WANTED_H
#define CN_MANAGEMENT_CLUSTER_WANTED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_WANTED_ID_MAX 17 /* a random number in hexadecimal digits, with its final zero */
#define CN_WANTED_MODELS_MAX 1000

/* A version that all nodes are to serve. Its strings belong to the set; NULL: not given. */
struct cn_wanted_model {
    char *name, *version, *url;
    char *digest; /* SHA-256 of the archive */
    char *id;     /* of the registration: the same version may be registered anew */
    char *handler, *runtime;
    char *swap_policy; /* while it is the default, as set-default gave it */
    int64_t batch_size, max_batch_delay_ms, response_timeout_s,
        startup_timeout_s; /* -1: not given */
    int64_t min_workers, max_workers;
    int64_t retire_wall_ms; /* when it goes because another one became the default; 0: never */
    bool is_default;
};

struct cn_wanted {
    struct cn_wanted_model *models;
    uint32_t n;
};

/* Reads the text; "" is the empty set. CN_E_PROTOCOL says what is wrong; `out` is then empty. The
 * caller ends it with cn_wanted_fini(). */
int cn_wanted_parse(struct cn_str text, struct cn_wanted *out, struct cn_error *err);
void cn_wanted_print(const struct cn_wanted *wanted, struct cn_buf *out);
void cn_wanted_fini(struct cn_wanted *wanted);

/* Finds a version; version NULL or "": the default one. NULL: there is none. */
struct cn_wanted_model *cn_wanted_find(const struct cn_wanted *wanted, const char *name,
                                       const char *version);
/* Frees what the model has, not the model. */
void cn_wanted_model_fini(struct cn_wanted_model *model);

enum cn_wanted_kind {
    CN_WANTED_REGISTER,
    CN_WANTED_SCALE,
    CN_WANTED_SET_DEFAULT,
    CN_WANTED_UNREGISTER,
    CN_WANTED_RETIRED /* its swap deadline has passed: unregistered if it still has this id */
};

struct cn_wanted_change {
    enum cn_wanted_kind kind;
    /* REGISTER: the version. The others: name and version (or NULL) say which one is meant; SCALE
     * has the workers, SET_DEFAULT the swap policy, RETIRED the id. */
    struct cn_wanted_model model;
    int64_t retire_wall_ms; /* SET_DEFAULT: when the default until now goes; 0: never */
};

/* Applies the change. *changed: the set has changed. *id (CN_WANTED_ID_MAX bytes, or NULL) gets the
 * id of the version, as it is or was in the set. If another node has already registered the version
 * from an archive with the same digest, *id gets the id of that registration.
 * CN_E_CONFLICT, CN_E_MODEL_NOT_FOUND, CN_E_VERSION_NOT_FOUND, CN_E_VERSION_IN_USE: refused, with
 * the texts of a single server. */
int cn_wanted_apply(struct cn_wanted *wanted, const struct cn_wanted_change *change, bool *changed,
                    char *id, struct cn_error *err);

#endif
