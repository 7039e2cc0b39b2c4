/* management/api/describe.h - the JSON of GET /models/..., gathered from the queues' loops. Loop
 * 0.
 */
#ifndef CN_MANAGEMENT_API_DESCRIBE_H
#define CN_MANAGEMENT_API_DESCRIBE_H

#include <jansson.h>

#include "management/management_priv.h"

/* `models` is an array, which belongs to the callee; or NULL and an error. */
typedef void (*cn_describe_done_fn)(void *ctx, json_t *models, const struct cn_error *err);

/* Describes a model. `version`: NULL means the default one, "all" all of them. A model that is only
 * being downloaded under this name is shown with the download's progress. `self_described`: also
 * with what the handler says of itself; not with "all". `done` may be called before the function
 * returns. */
void cn_describe(struct cn_management *management, const char *name, const char *version,
                 bool self_described, cn_describe_done_fn done, void *ctx);

/* The object of one version, made from what its pool has answered. */
json_t *cn_describe_version(const struct cn_version *version,
                            const struct cn_worker_pool_facts *facts);

/* For KServe v1, GET /v1/models/NAME: {"name", "ready"}; ready: it has a ready worker. NULL:
 * unknown. */
json_t *cn_describe_ready(struct cn_management *management, const char *name, struct cn_error *err);

/* One page of the list of models: `limit` default versions, sorted by name, from place `from`
 * on. */
json_t *cn_describe_list(struct cn_management *management, unsigned limit, unsigned from);

#endif
