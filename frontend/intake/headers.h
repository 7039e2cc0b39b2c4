/* frontend/intake/headers.h - questions about headers that HTTP and gRPC's metadata have in common.
 * Any thread, no state. */
#ifndef CN_FRONTEND_INTAKE_HEADERS_H
#define CN_FRONTEND_INTAKE_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "proto/message.h"

/* The first header of that name, or NULL. Upper and lower case are the same, and so are - and _. */
const struct cn_header *cn_header_find(const struct cn_header *headers, uint32_t n,
                                       struct cn_str name);

/* Does only the server write this header into a response? A handler's header of that name is left
 * out. These are the hop-by-hop headers, those that delimit the body, and our own. */
bool cn_header_is_ours(struct cn_str name);

/* Has the text only the bytes from ' ' to '~'? Then it may be a value in gRPC's metadata and in any
 * header. */
bool cn_header_is_printable(struct cn_str text);

#endif
