/* archiver/archive/digest.h - computes the SHA-256 of files. Any thread; blocks on the disk. */
#ifndef CN_ARCHIVER_ARCHIVE_DIGEST_H
#define CN_ARCHIVER_ARCHIVE_DIGEST_H

#include <stdint.h>

#include "core/errors/error.h"

/* Computes the digest of the file at `path` as 64 hex digits, and its size (`bytes` may be NULL).
 * If `follow` is 0, a path whose last part is a symbolic link is refused. */
int cn_digest_file(const char *path, int follow, char hex[65], uint64_t *bytes,
                   struct cn_error *err);

#endif
