/* archiver/import/import_yaml.h - writes a Triton model configuration as a model's YAML. Archiver
 * only. */
#ifndef CN_ARCHIVER_IMPORT_IMPORT_YAML_H
#define CN_ARCHIVER_IMPORT_IMPORT_YAML_H

#include "archiver/import/pbtxt.h"
#include "core/memory/buf.h"

/* Called for each field that is not carried over: its path, its line, and what that means. */
typedef void (*cn_import_lost_fn)(void *ctx, const char *path, unsigned line, const char *note);

/* Appends the YAML. `config` is a whole document. Returns CN_E_INVALID_MODEL if a field does not
 * have the kind of value that it must have; the message has `name` and the line. */
int cn_import_yaml(const char *name, const struct cn_pbtxt *config, struct cn_buf *out,
                   cn_import_lost_fn lost, void *ctx, struct cn_error *err);

#endif
