/* management/models/registry.h - names, versions and defaults, and the views by which loops find
 * queues.
 *
 * The registry itself belongs to loop 0. Each loop has a view: immutable data, with a pointer of
 * its own to it, so that no lock is needed. A change is published as a new view. When all loops
 * have taken it and have finished the turn in which they did, the publication is done, and what
 * left the registry before it can no longer be found.
 */
#ifndef CN_MANAGEMENT_MODELS_REGISTRY_H
#define CN_MANAGEMENT_MODELS_REGISTRY_H

#include <stdbool.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"
#include "core/text/str.h"
#include "management/models/model_load.h"
#include "management/pool/worker_pool.h"

struct cn_environment;
struct cn_management;
struct cn_registry;

enum cn_version_phase {
    CN_VERSION_REGISTERING, /* the name is reserved, but there is no queue yet */
    CN_VERSION_UP,
    CN_VERSION_CLOSING /* no longer in the registry's models */
};

/* One model version. It belongs to loop 0; `about`, `store_dir` and `queue` never change once it is
 * in a view. */
struct cn_version {
    struct cn_list link; /* in its model's list, by age; or in the list of those that are closing */
    struct cn_model *model; /* NULL while closing */
    enum cn_version_phase phase;
    struct cn_model_about about;
    /* the packages that its workers use; NULL: those of its interpreter */
    struct cn_environment *environment;
    char *store_dir;      /* NULL with durability none or a shared store */
    uint64_t store_inode; /* inode of that folder when it was first looked at; 0: not yet */
    bool at_startup;
    /* cluster-models: the id of its registration in the set of models; "": it is not there yet */
    char wanted_id[17];
    uint32_t min_workers, max_workers; /* the bounds that an operator set last */
    uint64_t watched_jobs;             /* its count of jobs when the page's feed last ranked it */
    struct cn_worker_pool *pool;
    struct cn_model_queue *queue;
    struct cn_worker_pool_health health;

    enum cn_swap_policy swap_policy; /* while it is the default: for sequences of other versions */
    uint64_t retire_wall_ms;         /* when it is retired, after it was the default; 0: never */
    bool retired;
    /* fires at retire_wall_ms, and again when the version is to be unregistered */
    struct cn_timer retire_timer;
    struct cn_management *management;
};

struct cn_model {
    struct cn_list link;     /* in the registry's list, sorted by name */
    const char *name;        /* name_bytes */
    struct cn_list versions; /* struct cn_version, by age; never empty */
    struct cn_version *default_version;
    char name_bytes[];
};

struct cn_registry *cn_registry_create(struct cn_loop *const *loops, unsigned n_loops);
/* Frees the registry, when no loop runs and no version is left. */
void cn_registry_destroy(struct cn_registry *registry);

/* --- Loop 0 */

/* Adds a version. The first version of a name is its default. CN_E_CONFLICT: there is such a
 * version, or one that is still closing. */
int cn_registry_add(struct cn_registry *registry, struct cn_version *version, struct cn_error *err);
/* Moves a version to the list of the closing ones. If it was the default, the oldest other one is
 * now, and is returned; otherwise NULL. */
struct cn_version *cn_registry_remove(struct cn_registry *registry, struct cn_version *version);
/* Takes a version off the list of the closing ones. It then belongs to the caller alone. */
void cn_registry_forget(struct cn_version *version);
/* Finds a version that is up. `version` NULL or empty: the default one. CN_E_MODEL_LOADING: it is
 * still being registered. */
struct cn_version *cn_registry_find(struct cn_registry *registry, const char *name,
                                    const char *version, struct cn_error *err);
void cn_registry_set_default(struct cn_version *version);
/* The list of struct cn_model by name, and that of the closing versions. */
struct cn_list *cn_registry_models(struct cn_registry *registry);
struct cn_list *cn_registry_closing(struct cn_registry *registry);
/* Publishes the registry as it is now. `on_done(ctx)` is called on loop 0 when every loop uses the
 * new view, never from inside. */
void cn_registry_publish(struct cn_registry *registry, void (*on_done)(void *ctx), void *ctx);

/* --- Any loop, by its view */

/* Finds a queue, which is valid until the end of this turn. Errors have TorchServe's text. */
struct cn_model_queue *cn_registry_lookup(struct cn_registry *registry, struct cn_str name,
                                          struct cn_str version, struct cn_error *err);
/* The version at place `i` of the model, by age; NULL past the last, and for an unknown model.
 * CN_E_MODEL_LOADING: some versions of it are still being registered. */
int cn_registry_version_at(struct cn_registry *registry, struct cn_str name, unsigned i,
                           struct cn_model_queue **out, struct cn_error *err);
/* The default version of the one model with a version that was loaded at start-up. */
struct cn_model_queue *cn_registry_lookup_startup(struct cn_registry *registry,
                                                  struct cn_error *err);
/* Does the default version have a ready worker? CN_E_MODEL_NOT_FOUND. */
int cn_registry_is_ready(struct cn_registry *registry, struct cn_str name, bool *out,
                         struct cn_error *err);
/* The number of models whose default version has fewer ready workers than it should have. */
uint32_t cn_registry_count_short(struct cn_registry *registry);
/* Calls `fn` for every version, by model and age. */
void cn_registry_each(struct cn_registry *registry,
                      void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready),
                      void *ctx);

#endif
