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

/* The strings belong to this struct. NULL means that the manifest does not have the key. */
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

/* Reads the manifest's text. `name` is the archive's name for error messages. Returns
 * CN_E_INVALID_MODEL, and a message that names the key, if the text is not JSON, a value has a
 * wrong type, the runtime is unknown, a name is empty, or a path leads out of the archive. */
int cn_manifest_parse(const char *name, struct cn_str json, struct cn_manifest *out,
                      struct cn_error *err);
/* Appends the manifest as JSON, indented by two spaces, with the keys in TorchServe's order. */
void cn_manifest_print(const struct cn_manifest *manifest, struct cn_buf *out);
void cn_manifest_fini(struct cn_manifest *manifest);

/* Returns the runtime that the model needs. Without a handler it is "onnx" or "torch", by the
 * suffix of the serialized file. A handler *.lua needs "lua". A handler *.so needs "c", unless the
 * manifest says "LSP". Otherwise it is what the manifest says, or "python" if it says nothing. */
const char *cn_manifest_runtime(const struct cn_manifest *manifest);

#endif
