/* core/whole.h - output is whole, or it is an error. Any thread. */
#ifndef CN_CORE_WHOLE_H
#define CN_CORE_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all `len` bytes, however many calls that takes. Returns 0 or the errno; then some may be written.
 * Blocks: not for descriptors of a loop. */
int cn_write_whole(int fd, const void *bytes, size_t len);

/* At a program's end, when all is printed: did it reach standard output (a full disk, a reader that is gone)?
 * If not, says so on standard error, in the name of `program`. */
bool cn_stdout_whole(const char *program);

#endif
