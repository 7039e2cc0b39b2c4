/* archiver/pack/pack_write.h - files and a manifest into one archive or folder. Archiver only. */
#ifndef CN_ARCHIVER_PACK_PACK_WRITE_H
#define CN_ARCHIVER_PACK_PACK_WRITE_H

#include "archiver/pack/pack_files.h"
#include "core/text/str.h"

/* Writes the archive to `fd`. `name`: of the folder around everything in a tar.gz. Checks that each
 * file still has the bytes that were hashed. */
int cn_pack_write_archive(int fd, enum cn_pack_format format, const char *name,
                          const struct cn_pack_files *files, struct cn_str manifest,
                          struct cn_error *err);

/* Copies over what is in the folder already; nothing is deleted. */
int cn_pack_write_folder(const char *dir, const struct cn_pack_files *files, struct cn_str manifest,
                         struct cn_error *err);

#endif
