/* archiver/archive/unpack.h - the content of an archive file into a folder. File thread, or the
 * archiver. */
#ifndef CN_ARCHIVER_ARCHIVE_UNPACK_H
#define CN_ARCHIVER_ARCHIVE_UNPACK_H

#include "archiver/archive/archive.h"

/* Unpacks the zip or tar.gz that is open as `fd` (seekable) into the folder `root`, which is empty
 * and nobody else's. On failure the caller deletes the folder. `name` stands in messages. */
int cn_unpack(const char *name, int fd, const char *root, const struct cn_archive_limits *limits,
              struct cn_error *err);

#endif
