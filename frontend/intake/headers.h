/* frontend/intake/headers.h - questions about headers that HTTP and gRPC's metadata have in common.
 * Any thread, no state. */
#ifndef CN_FRONTEND_INTAKE_HEADERS_H
#define CN_FRONTEND_INTAKE_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "proto/message.h"

/* Returns the first header of that name, or NULL. Upper and lower case are the same, and so are -
 * and _. */
const struct cn_header *cn_header_find(const struct cn_header *headers, uint32_t n,
                                       struct cn_str name);

/* Returns true for a header that only the server may write into a response. A handler's header of
 * that name is left out. These are the hop-by-hop headers, those that delimit the body, and our
 * own. */
bool cn_header_is_ours(struct cn_str name);

/* Returns true if the text has only bytes from ' ' to '~', so that it may be a value in gRPC's
 * metadata and in any header. */
bool cn_header_is_printable(struct cn_str text);

#endif
