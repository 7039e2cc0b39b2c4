/* management/models/registry.h - names -> versions -> default, and the views by which loops find
 * queues.
 *
 * The registry itself belongs to loop 0. Each loop has a view: immutable, its own pointer to it, no
 * lock. A change is published as a new view; when all loops have taken it and finished the turn in
 * which they did, the publication is done, and what left the registry before it can no longer be
 * found.
 */
#ifndef CN_MANAGEMENT_MODELS_REGISTRY_H
#define CN_MANAGEMENT_MODELS_REGISTRY_H

#include <stdbool.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"
#include "core/text/str.h"
#include "management/models/model_load.h"
#include "management/workers/worker_pool.h"

struct cn_management;
struct cn_registry;

enum cn_version_phase {
    CN_VERSION_REGISTERING, /* reserved: has no queue yet */
    CN_VERSION_UP,
    CN_VERSION_CLOSING /* no longer in the registry's models */
};

/* One model version. Loop 0's; `about`, `store_dir` and `queue` never change once in a view. */
struct cn_version {
    struct cn_list link;    /* of its model, by age; or of those that are closing */
    struct cn_model *model; /* NULL while closing */
    enum cn_version_phase phase;
    struct cn_model_about about;
    char *store_dir;      /* NULL with durability none */
    uint64_t store_inode; /* of that folder when it was first looked at; 0: not yet */
    bool at_startup;
    uint32_t min_workers, max_workers; /* as last asked for */
    struct cn_worker_pool *pool;
    struct cn_model_queue *queue;
    struct cn_worker_pool_health health;

    enum cn_swap_policy swap_policy; /* when it is the default: of other versions' sequences */
    uint64_t retire_wall_ms; /* it was the default, and does no step from then on; 0: none */
    bool retired;
    struct cn_timer retire_timer; /* that, and then its end */
    struct cn_management *management;
};

struct cn_model {
    struct cn_list link;     /* by name */
    const char *name;        /* name_bytes */
    struct cn_list versions; /* struct cn_version, by age; never empty */
    struct cn_version *default_version;
    char name_bytes[];
};

struct cn_registry *cn_registry_create(struct cn_loop *const *loops, unsigned n_loops);
/* When no loop runs. The versions must be gone. */
void cn_registry_destroy(struct cn_registry *registry);

/* --- Loop 0 */

/* The first version of a name is its default. CN_E_CONFLICT when there is such a version, or one
 * that is still closing. */
int cn_registry_add(struct cn_registry *registry, struct cn_version *version, struct cn_error *err);
/* To the closing ones. The oldest other version becomes the default if this one was. */
void cn_registry_remove(struct cn_registry *registry, struct cn_version *version);
/* Off the list of the closing ones; the version is then the caller's alone. */
void cn_registry_forget(struct cn_version *version);
/* `version` NULL or empty: the default one. Only versions that are up; CN_E_MODEL_LOADING for one
 * that is being registered. */
struct cn_version *cn_registry_find(struct cn_registry *registry, const char *name,
                                    const char *version, struct cn_error *err);
void cn_registry_set_default(struct cn_version *version);
/* The list of struct cn_model by name, and that of the closing versions. */
struct cn_list *cn_registry_models(struct cn_registry *registry);
struct cn_list *cn_registry_closing(struct cn_registry *registry);
/* `on_done(ctx)` on loop 0 when every loop goes by the registry as it is now; never from inside. */
void cn_registry_publish(struct cn_registry *registry, void (*on_done)(void *ctx), void *ctx);

/* --- Any loop, by its view */

/* Good until the end of this turn. Names as in TorchServe's messages. */
struct cn_model_queue *cn_registry_lookup(struct cn_registry *registry, struct cn_str name,
                                          struct cn_str version, struct cn_error *err);
/* The version at place `i` of the model, by age; NULL past the last, and for an unknown model.
 * CN_E_MODEL_LOADING: some of its versions are still coming. */
int cn_registry_version_at(struct cn_registry *registry, struct cn_str name, unsigned i,
                           struct cn_model_queue **out, struct cn_error *err);
/* The default version of the one model with a version that was loaded at start-up. */
struct cn_model_queue *cn_registry_lookup_startup(struct cn_registry *registry,
                                                  struct cn_error *err);
/* Has the default version a ready worker? CN_E_MODEL_NOT_FOUND. */
int cn_registry_is_ready(struct cn_registry *registry, struct cn_str name, bool *out,
                         struct cn_error *err);
/* Models whose default version has fewer ready workers than it should have. */
uint32_t cn_registry_count_short(struct cn_registry *registry);
/* Every version, by model and age. */
void cn_registry_each(struct cn_registry *registry,
                      void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready),
                      void *ctx);

#endif
