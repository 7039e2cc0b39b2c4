/* kserve/repository_requests.h - bodies of the model repository's requests, and its index. Any
 * thread. */
#ifndef CN_KSERVE_REPOSITORY_REQUESTS_H
#define CN_KSERVE_REPOSITORY_REQUESTS_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"

/* The body of a load: empty, or {"parameters": {"config": "..."}}. *config: that text in the arena,
 * or empty. CN_E_INTERNAL: no JSON, or an unknown parameter; CN_E_UNIMPLEMENTED: files. */
int cn_v2_read_load(struct cn_str body, struct cn_arena *arena, struct cn_str *config,
                    struct cn_error *err);
/* What the name of a parameter of a load says, whatever transport it came by. */
int cn_v2_check_load_parameter(struct cn_str name, struct cn_error *err);
/* The body of an unload: empty, or {"parameters": {"unload_dependents": false}}. */
int cn_v2_read_unload(struct cn_str body, struct cn_error *err);

/* An element of the index. NULL members are left out. */
void cn_v2_write_index_entry(const char *name, const char *version, const char *state,
                             const char *reason, struct cn_buf *out);

#endif
