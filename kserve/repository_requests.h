/* kserve/repository_requests.h - bodies of the v2 protocol's requests for the model repository, and
 * its index. Any thread. */
#ifndef CN_KSERVE_REPOSITORY_REQUESTS_H
#define CN_KSERVE_REPOSITORY_REQUESTS_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"

/* Reads the body of a load: empty, or {"parameters": {"config": "..."}}. Stores that text, or an
 * empty one, in the arena. Returns CN_E_INTERNAL when the body is not JSON or has an unknown
 * parameter, and CN_E_UNIMPLEMENTED for files. */
int cn_v2_read_load(struct cn_str body, struct cn_arena *arena, struct cn_str *config,
                    struct cn_error *err);
/* Checks the name of a load's parameter, for all transports. */
int cn_v2_check_load_parameter(struct cn_str name, struct cn_error *err);
/* Reads the body of an unload: empty, or {"parameters": {"unload_dependents": false}}. */
int cn_v2_read_unload(struct cn_str body, struct cn_error *err);

/* Writes an element of the index. Members that are NULL are left out. */
void cn_v2_write_index_entry(const char *name, const char *version, const char *state,
                             const char *reason, struct cn_buf *out);

#endif
