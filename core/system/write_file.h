/* core/system/write_file.h - writes output completely, or reports an error. Any thread. */
#ifndef CN_CORE_SYSTEM_WRITE_FILE_H
#define CN_CORE_SYSTEM_WRITE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Writes all `len` bytes, with as many calls as that takes. Returns 0, or the errno; then a part
 * may be written. It blocks, so it is not for descriptors of a loop. */
int cn_write_all(int fd, const void *bytes, size_t len);

/* Writes all bytes, syncs them to the disk if `fd` has one, and closes `fd` in any case. Returns 0
 * or the errno. */
int cn_write_out(int fd, const void *bytes, size_t len);

/* Writes a file atomically: `path` then has these bytes, on the disk, or on failure is unchanged. A
 * reader, or a kill, never meets half of it. `beside` is the temporary name, in the same folder; a
 * file that a killed program left there is removed. Nobody else may write the file at the same
 * time. Returns 0 or the errno. Blocks for the disk. */
int cn_write_file_atomically(const char *path, const char *beside, mode_t mode, const void *bytes,
                             size_t len);

/* Does what cn_write_file_atomically does, for a file that exists. The file keeps the owner, the
 * group and the mode that are in `old`. EPERM: the caller may not give a file to that owner. */
int cn_replace_file(const char *path, const char *beside, const struct stat *old, const void *bytes,
                    size_t len);

/* For the end of a program: did all output reach standard output? If not, because of a full disk or
 * a reader that is gone, it says so on standard error in the name of `program`. */
bool cn_stdout_complete(const char *program);

#endif
