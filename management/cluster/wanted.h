/* management/cluster/wanted.h - the set of models that all nodes are to serve, how a change of it
 * is applied, and how two sets become one. No state, any thread.
 *
 * The set is kept in the shared store as JSON:
 * {"layout": 1, "models": [{"name": "counter", "version": "1.0", "url": "counter.mar", ...}],
 *  "changesSince": 0, "changes": [{"kind": "register", "change": "5f0c...", "generation": 1, ...}]}
 * A set with a newer layout is refused. In a set with this layout, members that this version of
 * Continuo does not know are skipped.
 *
 * "changes" is the log: the last CN_WANTED_LOG_MAX changes, the oldest first. A store that fails
 * over may come back with an older set, to which other nodes then add changes. By the two logs,
 * cn_wanted_merge() sees which changes each of the two sets lacks.
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
#define CN_WANTED_LOG_MAX 16

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
     * has the workers, SET_DEFAULT the swap policy, RETIRED the id. If an UNREGISTER has an id, it
     * concerns only the registration with this id. */
    struct cn_wanted_model model;
    int64_t retire_wall_ms;           /* SET_DEFAULT: when the default until now goes; 0: never */
    char change_id[CN_WANTED_ID_MAX]; /* a random number, the same in every set that has it */
    uint64_t generation;              /* the one with which it is written */
};

struct cn_wanted {
    struct cn_wanted_model *models;
    uint32_t n;
    /* The last changes, the oldest first. Their models have strings of their own. */
    struct cn_wanted_change log[CN_WANTED_LOG_MAX];
    uint32_t n_log;
    bool has_log;       /* false: an older version of Continuo has written the set */
    uint64_t log_since; /* the log has every change with a generation above this one */
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

/* Applies the change, and notes it in the log. *changed: the set has changed. *id
 * (CN_WANTED_ID_MAX bytes, or NULL) gets the id of the version, as it is or was in the set. If
 * another node has already registered the version from an archive with the same digest, *id gets
 * the id of that registration.
 * CN_E_CONFLICT, CN_E_MODEL_NOT_FOUND, CN_E_VERSION_NOT_FOUND, CN_E_VERSION_IN_USE: refused, with
 * the texts of a single server. */
int cn_wanted_apply(struct cn_wanted *wanted, const struct cn_wanted_change *change, bool *changed,
                    char *id, struct cn_error *err);

/* "register", "scale" and so on. */
const char *cn_wanted_kind_word(enum cn_wanted_kind kind);

/* Called for a change that the other set does not allow any more; `err` says why. */
typedef void (*cn_wanted_lost_fn)(void *ctx, const struct cn_wanted_change *change,
                                  const struct cn_error *err);
/* `mine` is the set that this node has seen last, and `stored` the one that the store has now. If
 * `stored` lacks a change of `mine`, returns true, and `stored` becomes the set that has the
 * changes of both, to be written with the generation `generation`, which is above those of both.
 * `mine` is left in any valid state. `went_back` decides about sets without a log: the store's
 * generation is lower than that of `mine`. */
bool cn_wanted_merge(struct cn_wanted *stored, struct cn_wanted *mine, bool went_back,
                     uint64_t generation, cn_wanted_lost_fn on_lost, void *ctx);

#endif
