/* archiver/archive/verify.h - checks whether a model's folder holds what its manifest says. Blocks
 * on the disk. */
#ifndef CN_ARCHIVER_ARCHIVE_VERIFY_H
#define CN_ARCHIVER_ARCHIVE_VERIFY_H

#include <stdbool.h>

#include "archiver/archive/manifest.h"
#include "core/errors/error.h"

/* Reads <dir>/MAR-INF/MANIFEST.json. Returns CN_E_INVALID_MODEL if there is no manifest, or a wrong
 * one. `name` is used in error messages. */
int cn_verify_read_manifest(const char *name, const char *dir, struct cn_manifest *manifest,
                            struct cn_error *err);

/* Checks the handler, the named files, and each digest. With `exact`, a file that the list of
 * digests does not name is an error. Archives are checked with `exact`; a folder in which people
 * work may hold more files. */
int cn_verify_dir(const char *name, const char *dir, const struct cn_manifest *manifest, bool exact,
                  struct cn_error *err);

#endif
