/* management/api/self_description.h - what a handler says of itself, for GET
 * /models/NAME?customized=true. Loop 0.
 */
#ifndef CN_MANAGEMENT_API_SELF_DESCRIPTION_H
#define CN_MANAGEMENT_API_SELF_DESCRIPTION_H

#include <jansson.h>

#include "management/management_priv.h"

/* `metadata`: the handler's JSON object, {} if it said something else; it belongs to the callee. Or
 * NULL and an error: no worker, or the handler failed. */
typedef void (*cn_self_description_done_fn)(void *ctx, json_t *metadata,
                                            const struct cn_error *err);

/* Asks one worker of a version that is up. Until `done` is called, in a later turn, this counts as
 * an operation, and a drain of the server waits for its end. */
void cn_self_description_ask(struct cn_management *management, const struct cn_version *version,
                             cn_self_description_done_fn done, void *ctx);

#endif
