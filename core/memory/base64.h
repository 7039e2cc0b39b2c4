/* core/memory/base64.h - base64 (RFC 4648, 4: the usual alphabet, with padding), for bytes in JSON.
 * Any thread. */
#ifndef CN_CORE_MEMORY_BASE64_H
#define CN_CORE_MEMORY_BASE64_H

#include <stdbool.h>

#include "core/memory/arena.h"
#include "core/memory/buf.h"

/* Appends the text. If there is no room for it, `out` fails as in cn_buf_append(). */
void cn_base64_put(struct cn_str bytes, struct cn_buf *out);
/* Decodes into the arena. Returns false if the text is not base64, or if there is no memory. */
bool cn_base64_get(struct cn_str text, struct cn_arena *arena, struct cn_str *out);

#endif
