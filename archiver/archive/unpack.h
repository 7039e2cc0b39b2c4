/* archiver/archive/unpack.h - unpacks an archive file into a folder. File thread, or the archiver
 * program. */
#ifndef CN_ARCHIVER_ARCHIVE_UNPACK_H
#define CN_ARCHIVER_ARCHIVE_UNPACK_H

#include "archiver/archive/archive.h"

/* Unpacks the zip or tar.gz that is open as `fd` (seekable) into the folder `root`. The folder must
 * be empty, and nobody else may write to it. On failure the caller deletes the folder. `name` is
 * the archive's name for error messages. */
int cn_unpack(const char *name, int fd, const char *root, const struct cn_archive_limits *limits,
              struct cn_error *err);

#endif
