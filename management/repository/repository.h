/* management/repository/repository.h - the model store as the v2 protocol's model repository: load,
 * unload, index.
 *
 * What --model-control-mode allows. All work is done on loop 0; an order comes from any loop and is
 * answered there. Orders for one name run one after another.
 */
#ifndef CN_MANAGEMENT_REPOSITORY_REPOSITORY_H
#define CN_MANAGEMENT_REPOSITORY_REPOSITORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

struct cn_management;

/* In the order of the option's words. */
enum cn_control_mode {
    CN_CONTROL_NONE,     /* the models of the command line and the management API's */
    CN_CONTROL_EXPLICIT, /* the same, and the models that clients load by name */
    CN_CONTROL_POLL      /* the models are what lies in the store, looked at now and then */
};

enum cn_repository_what { CN_REPOSITORY_LOAD, CN_REPOSITORY_UNLOAD, CN_REPOSITORY_INDEX };

/* A model version, or a model of the store that was never loaded: then only `name` is set. */
struct cn_repository_entry {
    const char *name, *version, *state, *reason; /* NULL: not said */
};

struct cn_repository_order {
    enum cn_repository_what what;
    struct cn_str name; /* load, unload; borrowed until on_done */
    struct cn_str
        config; /* load: instead of the archive's YAML (YAML, or JSON, which is some); or empty */
    bool ready_only; /* index: only versions that are ready */
    struct cn_loop *origin;
    /* Once, on `origin`, never from inside cn_repository_run. A load is answered when its workers
     * are ready, an unload when no request finds the model any more. */
    void (*on_done)(struct cn_repository_order *order);
    struct cn_error err; /* code 0: done. Codes and words are the protocol's */
    uint32_t n_entries;
    struct cn_repository_entry *entries; /* index; in `arena`, until on_done returns */

    /* management's */
    struct cn_management *management;
    struct cn_msg msg;
    struct cn_arena arena;
};

/* The origin's loop. The order stays the caller's and in place until on_done. */
void cn_repository_run(struct cn_management *management, struct cn_repository_order *order);

#endif
