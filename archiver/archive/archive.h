/* archiver/archive/archive.h - model archives: read, verify, unpack (the library half).
 *
 * .mar and .zip (zip), .tgz and .tar.gz (tar+gzip, one leading folder), or a folder.
 * By libarchive. Refused: absolute paths, "..", links, devices, more files or
 * bytes than the limits, names that differ only by what unpacking would merge.
 */
#ifndef CN_ARCHIVER_ARCHIVE_ARCHIVE_H
#define CN_ARCHIVER_ARCHIVE_ARCHIVE_H

#include <stdint.h>

#include "archiver/archive/manifest.h"
#include "core/errors/error.h"

struct cn_archive_limits {
    uint64_t max_bytes;      /* unpacked, all files */
    uint64_t max_file_bytes; /* unpacked, one file */
    uint32_t max_files;
};
extern const struct cn_archive_limits cn_archive_default_limits; /* 8 GiB, 4 GiB, 10,000 */

/* Unpacks `path` into `dest` (created; must not exist or be empty) and reads its manifest; a folder
 * is not copied but read in place: *dir is then the folder itself. Verifies each SHA-256 the
 * manifest lists. On failure nothing is left behind. `dir` (absolute, cn_free) is where the model's
 * files are. Blocks: call it on the file thread. */
int cn_archive_unpack(const char *path, const char *dest, const struct cn_archive_limits *limits,
                      struct cn_manifest *manifest, char **dir, struct cn_error *err);

/* Reads a folder made by cn_archive_unpack again. Digests are not looked at: the caller knows that
 * nothing in it has changed since. */
int cn_archive_reread(const char *dest, struct cn_manifest *manifest, char **dir,
                      struct cn_error *err);

/* Deletes a folder made by cn_archive_unpack. Never follows links. */
void cn_archive_remove_dir(const char *dest);

#endif
