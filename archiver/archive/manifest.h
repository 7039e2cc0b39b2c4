/* archiver/archive/manifest.h - MAR-INF/MANIFEST.json of a model archive.
 *
 * It has TorchServe's keys (createdOn, runtime, model{...}, archiverVersion) and two of ours:
 * "python": ">=3.9,<3.14", and "files": {"handler.lua": "sha256:<64 hex>", ...}, which are verified
 * at load. Any thread.
 */
#ifndef CN_ARCHIVER_ARCHIVE_MANIFEST_H
#define CN_ARCHIVER_ARCHIVE_MANIFEST_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_manifest_file {
    char *path, *sha256; /* 64 hex digits */
};

/* Strings are the manifest's own; NULL where the archive has no such key. */
struct cn_manifest {
    char *created_on, *runtime, *archiver_version;
    char *python; /* which versions of Python the handler needs: ">=3.9,<3.14" */
    char *model_name, *model_version, *handler, *serialized_file, *model_file, *requirements_file,
        *config_file;
    struct cn_manifest_file *files;
    uint32_t n_files;
};

/* "MAR-INF/MANIFEST.json" */
#define CN_MANIFEST_PATH "MAR-INF/MANIFEST.json"

/* `name` stands in messages. CN_E_INVALID_MODEL with the key and why: not JSON, a wrong type, an
 * unknown runtime, an empty name, a path that leads out of the archive. */
int cn_manifest_parse(const char *name, struct cn_str json, struct cn_manifest *out,
                      struct cn_error *err);
/* Two-space indented JSON, keys in TorchServe's order. */
void cn_manifest_print(const struct cn_manifest *manifest, struct cn_buf *out);
void cn_manifest_fini(struct cn_manifest *manifest);

/* The runtime that the model needs: "torch" for a serialized file without handler, "lua" for *.lua,
 * "c" for *.so (but "LSP" where the manifest says so); otherwise what the manifest says, or
 * "python". */
const char *cn_manifest_runtime(const struct cn_manifest *manifest);

#endif
