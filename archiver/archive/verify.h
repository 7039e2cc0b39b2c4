/* archiver/archive/verify.h - does a model's folder hold what its manifest says? Blocks on the
 * disk. */
#ifndef CN_ARCHIVER_ARCHIVE_VERIFY_H
#define CN_ARCHIVER_ARCHIVE_VERIFY_H

#include <stdbool.h>

#include "archiver/archive/manifest.h"
#include "core/errors/error.h"

/* Reads <dir>/MAR-INF/MANIFEST.json. CN_E_INVALID_MODEL where there is none, or a wrong one.
 * `name` stands in messages. */
int cn_verify_read_manifest(const char *name, const char *dir, struct cn_manifest *manifest,
                            struct cn_error *err);

/* Checks the handler, the named files, and each digest. `exact`: a file that a list of digests does
 * not name is an error (archives; a folder that people work in may hold more). */
int cn_verify_dir(const char *name, const char *dir, const struct cn_manifest *manifest, bool exact,
                  struct cn_error *err);

#endif
