/* archiver/program/check_handler.h - finds mistakes in a handler's source before it is packed.
 * Archiver only. */
#ifndef CN_ARCHIVER_PROGRAM_CHECK_HANDLER_H
#define CN_ARCHIVER_PROGRAM_CHECK_HANDLER_H

#include "archiver/pack/pack.h"

/* Compiles the handler in Lua or Python, without running it: Lua with the library that the worker
 * has, Python with the python3 of PATH if there is one. Returns CN_E_BAD_REQUEST with file and line
 * of a syntax error. Functions with misspelt names are warnings. A file that cannot be read is left
 * to cn_pack. */
int cn_archiver_check_handler(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
                              struct cn_error *err);

#endif
