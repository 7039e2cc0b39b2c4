/* management/state/stores.h - the stores in the state folder: which there are, whose they are,
 * whether they are whole, and that they are still there.
 *
 * A store is a folder <model>/<version> of the state folder's `models`. It is "in use" when a
 * registered version has it, "set aside" when it could not be read after a power cut, else
 * "unused": left by a kill in the middle of a register or unregister call, or of a version that
 * this start did not register again. A watch looks every two seconds whether stores in use are
 * damaged (the file DAMAGED, which workers write) and whether somebody took their folders away.
 * Both make the server unhealthy (management/state/health_reasons.h). Loop 0; what touches the disk
 * runs on the file thread.
 */
#ifndef CN_MANAGEMENT_STATE_STORES_H
#define CN_MANAGEMENT_STATE_STORES_H

#include <jansson.h>

#include "core/errors/error.h"
#include "management/models/registry.h"

struct cn_management;
struct cn_stores;

typedef void (*cn_stores_done_fn)(void *ctx, json_t *value, const struct cn_error *err);

struct cn_stores *cn_stores_create(struct cn_management *management);
/* Frees it, when no loop runs. */
void cn_stores_destroy(struct cn_stores *stores);
/* The models of the command line are registered: logs unused stores and begins to watch. */
void cn_stores_started(struct cn_stores *stores);
/* The version's workers are ready: is the store that they opened intact? It only looks for one
 * small file, and does so at once, so that no health check comes before the result. */
void cn_stores_look(struct cn_stores *stores, struct cn_version *version);
/* The version is gone, and with it its reasons to be unhealthy. */
void cn_stores_forget(struct cn_stores *stores, const struct cn_version *version);

/* GET /stores: {"stores": [...], "unhealthy": [...]}. `value` is the callback's. `count`: also how
 * many sequences are in unused stores, for which each of them is read. */
void cn_stores_list(struct cn_stores *stores, bool count, cn_stores_done_fn done, void *ctx);
/* Deletes a store, named by its folders. CN_E_CONFLICT: it is in use; CN_E_MODEL_NOT_FOUND. */
void cn_stores_remove(struct cn_stores *stores, const char *model, const char *version,
                      cn_stores_done_fn done, void *ctx);
/* An operator accepts what was lost. */
void cn_stores_accept(struct cn_stores *stores, const char *model, const char *version,
                      cn_stores_done_fn done, void *ctx);

#endif
