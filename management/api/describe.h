/* management/api/describe.h - what GET /models/... shows: gathered from the queues' loops.
 * Loop 0. */
#ifndef CN_MANAGEMENT_API_DESCRIBE_H
#define CN_MANAGEMENT_API_DESCRIBE_H

#include <jansson.h>

#include "management/management_priv.h"

/* `models` (an array, the callee's), or NULL and what was wrong. */
typedef void (*cn_describe_done_fn)(void *ctx, json_t *models, const struct cn_error *err);

/* A model that is being downloaded under that name, and not known otherwise, is shown as that.
 * `version`: NULL the default one, "all" every one. `customized`: with what the handler says of
 * itself; not with "all". */
void cn_describe(struct cn_management *management, const char *name, const char *version,
                 bool self_described, cn_describe_done_fn done, void *ctx);

/* KServe v1, GET /v1/models/NAME: {"name", "ready": has it a ready worker?}. NULL: unknown. */
json_t *cn_describe_ready(struct cn_management *management, const char *name, struct cn_error *err);

/* One page of the list: default versions by name. */
json_t *cn_describe_list(struct cn_management *management, unsigned limit, unsigned from);

#endif
