/* archiver/archive/digest.h - SHA-256 of files, by libsodium. Any thread; blocks on the disk. */
#ifndef CN_ARCHIVER_ARCHIVE_DIGEST_H
#define CN_ARCHIVER_ARCHIVE_DIGEST_H

#include <stdint.h>

#include "core/errors/error.h"

/* 64 hex digits of the file at `path`, and its size (may be NULL). A symbolic link as the last part
 * of the path is refused when `follow` is 0. */
int cn_digest_file(const char *path, int follow, char hex[65], uint64_t *bytes,
                   struct cn_error *err);

#endif
