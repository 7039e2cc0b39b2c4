/* archiver/archive/archive.h - reads, verifies and unpacks model archives.
 *
 * An archive is a zip file (.mar, .zip), a compressed tar file with one folder around everything
 * (.tgz, .tar.gz), or a folder. libarchive reads the files. An archive is refused if it has an
 * absolute path, "..", a link, a device, more files or bytes than the limits allow, or two names
 * that would become one file.
 */
#ifndef CN_ARCHIVER_ARCHIVE_ARCHIVE_H
#define CN_ARCHIVER_ARCHIVE_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "archiver/archive/manifest.h"
#include "core/errors/error.h"

struct cn_archive_limits {
    uint64_t max_bytes;      /* of all files, unpacked */
    uint64_t max_file_bytes; /* of one file, unpacked */
    uint32_t max_files;
    /* The file with the public keys of which one must have signed the archive: then a folder is
     * refused, and an archive before anything in it is read (sign.h). NULL: any archive is read. */
    const char *trusted_keys;
};
extern const struct cn_archive_limits cn_archive_default_limits; /* 8 GiB, 4 GiB, 10,000 */

/* Unpacks `path` into `dest` and reads the manifest. `dest` is created; if it exists, it must be
 * empty. Each SHA-256 in the manifest is verified. If `path` is a folder, it is not copied but used
 * as it is. `dir` gets the absolute path of the folder with the model's files, to be freed with
 * cn_free(). On failure nothing is left behind. Blocks: call it on the file thread. */
int cn_archive_unpack(const char *path, const char *dest, const struct cn_archive_limits *limits,
                      struct cn_manifest *manifest, char **dir, struct cn_error *err);

/* Reads a folder that cn_archive_unpack made earlier. Digests are not verified, because the caller
 * knows that nothing in the folder has changed since. */
int cn_archive_reread(const char *dest, struct cn_manifest *manifest, char **dir,
                      struct cn_error *err);

/* Deletes a folder with all that is in it, as far as it can be deleted, or a file. Does not follow
 * links, even if a process that may write into the folder makes them meanwhile. */
void cn_archive_remove_dir(const char *dest);
/* Deletes what is in a folder in the same way, and keeps the folder. False: there is no
 * such folder. */
bool cn_archive_empty_dir(const char *dest);

#endif
