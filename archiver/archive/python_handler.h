/* archiver/archive/python_handler.h - how the manifest names a handler in Python, as TorchServe's
 * users know it, and which Python it needs. Any thread.
 *
 * "handler.py", "handler.py:function", "handler:function" and "folder/handler" are all names of a
 * file with the suffix .py. A name such as "image_classifier" is a handler of TorchServe's package.
 */
#ifndef CN_ARCHIVER_ARCHIVE_PYTHON_HANDLER_H
#define CN_ARCHIVER_ARCHIVE_PYTHON_HANDLER_H

#include <stdbool.h>
#include <stddef.h>

/* Is it a handler of TorchServe's package? The archive then has no file for it. */
bool cn_python_handler_is_built_in(const char *handler);

/* Writes the path of the handler's file to `out`. Returns false if it does not fit. */
bool cn_python_handler_file(const char *handler, char *out, size_t cap);

/* Checks a constraint of versions, such as ">=3.9,<3.14". The operators are those of pip: ==, !=,
 * <, <=, >, >= and ~=. Returns NULL, or what is wrong with it. */
const char *cn_python_constraint_problem(const char *constraint);

#endif
