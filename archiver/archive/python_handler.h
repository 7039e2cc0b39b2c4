/* archiver/archive/python_handler.h - reads two strings of the manifest about a handler in Python:
 * the handler's name, which has TorchServe's forms, and the versions of Python that it needs. Any
 * thread.
 *
 * "handler.py", "handler.py:function", "handler:function" and "folder/handler" are all names of a
 * file with the suffix .py. A name such as "image_classifier" is a handler of TorchServe's package.
 */
#ifndef CN_ARCHIVER_ARCHIVE_PYTHON_HANDLER_H
#define CN_ARCHIVER_ARCHIVE_PYTHON_HANDLER_H

#include <stdbool.h>
#include <stddef.h>

/* Is it a handler of TorchServe's package? If so, the archive has no file for it. */
bool cn_python_handler_is_built_in(const char *handler);

/* Writes the path of the handler's file to `out`. Returns false if it does not fit. */
bool cn_python_handler_file(const char *handler, char *out, size_t cap);

/* Checks a constraint of versions, such as ">=3.9,<3.14". The operators are those of pip: ==, !=,
 * <, <=, >, >= and ~=. Returns NULL if it is valid, or a text that says what is
 * wrong with it. */
const char *cn_python_constraint_problem(const char *constraint);

#endif
