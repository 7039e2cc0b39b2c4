/* core/system/write_file.h - output is whole, or it is an error. Any thread. */
#ifndef CN_CORE_SYSTEM_WRITE_FILE_H
#define CN_CORE_SYSTEM_WRITE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes all `len` bytes, however many calls that takes. Returns 0 or the errno; then some may be
 * written. Blocks: not for descriptors of a loop. */
int cn_write_all(int fd, const void *bytes, size_t len);

/* The same, then to the disk, where there is one, and closes `fd`, whatever came of it. */
int cn_write_out(int fd, const void *bytes, size_t len);

/* Makes a file of these bytes, in place of what is there under `path`, as a whole or not at all:
 * whoever reads it or stops us sees no half, and on success its bytes are on the disk. `beside` is
 * the name for the while, in the same folder; what a killed program left there goes. Nobody else
 * may write it at the same time. Returns 0 or the errno; then `path` is as it was. Blocks for the
 * disk. */
int cn_write_file_atomically(const char *path, const char *beside, mode_t mode, const void *bytes,
                             size_t len);

/* At a program's end, when all is printed: did it reach standard output (a full disk, a reader that
 * is gone)? If not, says so on standard error, in the name of `program`. */
bool cn_stdout_complete(const char *program);

#endif
