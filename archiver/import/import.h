/* archiver/import/import.h - a model of a Triton repository becomes archives. Any thread, but for
 * the format of zip (pack.h).
 */
#ifndef CN_ARCHIVER_IMPORT_IMPORT_H
#define CN_ARCHIVER_IMPORT_IMPORT_H

#include "archiver/pack/pack.h"

/* Borrowed strings; NULL where not given. */
struct cn_import_spec {
    const char *dir;         /* the model's folder, with config.pbtxt in it; it is only read */
    const char *handler;     /* NULL: the one in the version's folder */
    const char *export_path; /* NULL: the working folder */
    enum cn_pack_format format;
    bool force;         /* overwrite */
    bool last_has_name; /* of several versions the last one's archive is NAME, not NAME-VERSION */
};

/* What an import tells while it runs. */
struct cn_import_events {
    void *ctx;
    void (*on_archive)(void *ctx, const char *model, const char *version, const char *path);
    void (*on_lost)(void *ctx, const char *text);    /* a field that is not carried over */
    void (*on_warning)(void *ctx, const char *text); /* about the model's YAML */
};

/* CN_E_NOT_FOUND: no config.pbtxt, version or handler; CN_E_INVALID_MODEL: a backend that is not
 * here; CN_E_CONFIG, CN_E_CONFLICT, CN_E_IO. Archives made before a failure stay. */
int cn_import(const struct cn_import_spec *spec, const struct cn_import_events *events,
              struct cn_error *err);

#endif
