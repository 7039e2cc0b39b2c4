/* management/sequences.h - what management does to single sequences. Loop 0. */
#ifndef CN_MANAGEMENT_SEQUENCES_H
#define CN_MANAGEMENT_SEQUENCES_H

#include <jansson.h>

#include "management/management_priv.h"

/* `value` (the callee's), or NULL and what was wrong. */
typedef void (*cn_sequence_done_fn)(void *ctx, json_t *value, const struct cn_error *err);

/* Deletes a sequence, live or stored; answers when a worker has done it. `version` NULL: the default
 * one. Saying it twice is no error. */
void cn_sequence_delete(struct cn_management *management, const char *name, const char *version,
                        const char *id, cn_sequence_done_fn done, void *ctx);

#endif
