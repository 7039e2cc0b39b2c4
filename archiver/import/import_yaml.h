/* archiver/import/import_yaml.h - writes a Triton model configuration as a model's YAML. Archiver
 * only. */
#ifndef CN_ARCHIVER_IMPORT_IMPORT_YAML_H
#define CN_ARCHIVER_IMPORT_IMPORT_YAML_H

#include "archiver/import/pbtxt.h"
#include "core/memory/buf.h"

/* What a version's folder has, and so what its YAML is for. */
enum cn_import_kind {
    CN_IMPORT_HANDLER, /* a handler of ours: handler.lua, handler.py or handler.so */
    CN_IMPORT_PYTHON,  /* a model for Triton's Python backend: model.py */
    CN_IMPORT_ONNX     /* an ONNX file: model.onnx */
};

/* Called for each field that is not carried over: its path, its line, and what that means. */
typedef void (*cn_import_lost_fn)(void *ctx, const char *path, unsigned line, const char *note);

/* Returns the environment that the parameter EXECUTION_ENV_PATH of a model for Triton's Python
 * backend names, as an absolute path, or NULL if there is none. The caller frees it. `dir` is the
 * model's folder. */
char *cn_import_environment(const struct cn_pbtxt *config, const char *dir);

/* Appends the YAML. `config` is a whole document, `dir` the model's folder. Returns
 * CN_E_INVALID_MODEL if a field does not have the kind of value that it must have; the message has
 * `name` and the line. */
int cn_import_yaml(const char *name, const struct cn_pbtxt *config, enum cn_import_kind kind,
                   const char *dir, struct cn_buf *out, cn_import_lost_fn lost, void *ctx,
                   struct cn_error *err);

#endif
