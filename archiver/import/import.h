/* archiver/import/import.h - makes archives of a model in a Triton repository, one for each
 * version. Any thread; but to write a zip, the program must have one thread only (pack.h).
 */
#ifndef CN_ARCHIVER_IMPORT_IMPORT_H
#define CN_ARCHIVER_IMPORT_IMPORT_H

#include "archiver/pack/pack.h"

/* The strings are borrowed. NULL means that the value was not given. */
struct cn_import_spec {
    const char *dir;         /* the model's folder, with config.pbtxt in it; it is only read */
    const char *handler;     /* NULL: the one in the version's folder */
    const char *export_path; /* NULL: the working folder */
    enum cn_pack_format format;
    bool force;         /* overwrite */
    bool last_has_name; /* the last version's archive is called NAME, not NAME-VERSION */
};

/* What an import reports while it runs. */
struct cn_import_events {
    void *ctx;
    void (*on_archive)(void *ctx, const char *model, const char *version, const char *path);
    void (*on_lost)(void *ctx, const char *text);    /* a field that is not carried over */
    void (*on_warning)(void *ctx, const char *text); /* about the model's YAML */
};

/* Returns CN_E_NOT_FOUND if config.pbtxt, the version or the handler is missing, CN_E_INVALID_MODEL
 * if the model needs a backend that Continuo does not have, or CN_E_CONFIG, CN_E_CONFLICT or
 * CN_E_IO. Archives that were made before the failure stay. */
int cn_import(const struct cn_import_spec *spec, const struct cn_import_events *events,
              struct cn_error *err);

#endif
