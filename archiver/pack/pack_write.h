/* archiver/pack/pack_write.h - writes files and a manifest into one archive or folder. Archiver
 * only. */
#ifndef CN_ARCHIVER_PACK_PACK_WRITE_H
#define CN_ARCHIVER_PACK_PACK_WRITE_H

#include "archiver/pack/pack_files.h"
#include "core/text/str.h"

/* Writes the archive to `fd`. In a tar.gz all files lie in a folder called `name`. Fails if the
 * size of a file has changed since it was hashed. */
int cn_pack_write_archive(int fd, enum cn_pack_format format, const char *name,
                          const struct cn_pack_files *files, struct cn_str manifest,
                          struct cn_error *err);

/* Writes the files into the folder. Files of the same names that are already there are overwritten,
 * and other files stay. */
int cn_pack_write_folder(const char *dir, const struct cn_pack_files *files, struct cn_str manifest,
                         struct cn_error *err);

#endif
