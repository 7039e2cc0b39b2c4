/* proto/handler_names.h - finds functions of a handler that the server never calls because their
 * names are misspelt. Any thread. */
#ifndef CN_PROTO_HANDLER_NAMES_H
#define CN_PROTO_HANDLER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

enum cn_handler_language { CN_HANDLER_IN_LUA, CN_HANDLER_IN_PYTHON };

/* Returns the bit of a function's name: each row of handler_names.def has one. 0: no row has the
 * name for this language. */
uint32_t cn_handler_name_bit(struct cn_str name, enum cn_handler_language language);

/* The function that the author of `name` probably meant, as its signature: "close(seq, state,
 * reason)" for on_close and for clsoe. NULL if `name` is a function that the server calls, if
 * nothing is near, or if `present`, the bits of all functions in the handler, has the function that
 * was meant: then `name` is a function of the handler's own. `*certain` tells whether it is the
 * name with on_ before it, rather than a name that is only near. */
const char *cn_handler_name_meant(struct cn_str name, uint32_t present,
                                  enum cn_handler_language language, bool *certain);

#endif
