/* archiver/pack/pack.h - makes a model archive. Call it in a program with one thread only: writing
 * a zip changes the environment variable TZ.
 *
 * The same input always gives the same bytes: entries are sorted by name, and each has the time
 * 1980-01-01 UTC, the mode 0644 and the owner 0. createdOn comes from SOURCE_DATE_EPOCH; without
 * that variable it is 1980, too.
 */
#ifndef CN_ARCHIVER_PACK_PACK_H
#define CN_ARCHIVER_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "core/errors/error.h"

enum cn_pack_format {
    CN_PACK_MAR,       /* <name>.mar: zip, deflated */
    CN_PACK_MAR_STORE, /* <name>.mar: zip, stored */
    CN_PACK_TGZ,       /* <name>.tar.gz: everything in folder <name> */
    CN_PACK_FOLDER     /* folder <name> */
};

/* The strings are borrowed. NULL means that a value was not given. */
struct cn_pack_spec {
    const char *model_name, *version; /* required */
    const char *handler;              /* required, except for TorchScript and ONNX models */
    const char *handler_name;         /* its path in the archive; NULL: at the root */
    const char *serialized_file, *model_file, *extra_files, *requirements_file, *config_file;
    const char *python;      /* versions of Python, ">=3.9,<3.14"; NULL: any */
    const char *runtime;     /* NULL: by the handler's suffix */
    const char *export_path; /* NULL: the working folder */
    const char *file_name;   /* without its suffix; NULL: the model's name */
    enum cn_pack_format format;
    bool force;    /* overwrite */
    bool no_check; /* the tensors that the YAML declares are not read */
};

struct cn_pack_result {
    char *path;      /* cn_free */
    uint64_t bytes;  /* 0 for a folder */
    char sha256[65]; /* of the archive; empty for a folder */
};

/* Is the serialized file a TorchScript or ONNX model that is to run by itself? */
bool cn_pack_is_model(const struct cn_pack_spec *spec);

/* Makes the archive, and checks the model's YAML before (warnings go to `warn`). Returns
 * CN_E_CONFIG, CN_E_BAD_REQUEST, CN_E_CONFLICT (the archive exists and `force` is not set),
 * CN_E_NOT_FOUND or CN_E_IO. After a failure no archive is left. */
int cn_pack(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
            struct cn_pack_result *result, struct cn_error *err);

#endif
