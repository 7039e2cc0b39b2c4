/* archiver/import/import_priv.h - what import.c and import_find.c share: an import while it runs.
 * Archiver only. */
#ifndef CN_ARCHIVER_IMPORT_IMPORT_PRIV_H
#define CN_ARCHIVER_IMPORT_IMPORT_PRIV_H

#include "archiver/import/import.h"
#include "archiver/import/import_yaml.h"

#define CN_IMPORT_VERSIONS_MAX 1000

struct import {
    const struct cn_import_spec *spec;
    const struct cn_import_events *events;
    char *pbtxt; /* path of the configuration */
    struct cn_arena arena;
    struct cn_buf bytes, yaml;
    const struct cn_pbtxt *config;
    char *model;
    uint64_t versions[CN_IMPORT_VERSIONS_MAX]; /* those to pack, ascending */
    uint32_t n_versions;
    struct cn_error *err;
};

/* The model of one version. */
struct import_model {
    enum cn_import_kind kind;
    char *path; /* path of the handler, the model.py or the ONNX file; freed with cn_free() */
};

/* --- import_find.c */

/* Returns the text of a field, or NULL if it is not there or empty. */
const char *cn_import_text(const struct cn_pbtxt *config, const char *name);
/* A version is a folder whose name is a number above 0 and nothing else. Returns false for another
 * name. */
bool cn_import_version_number(const char *name, uint64_t *out);
/* Lists the versions that the folder has. CN_E_NOT_FOUND: it has none. */
int cn_import_list_versions(struct import *import);
/* Keeps the versions that version_policy chooses: all, specific { versions } or
 * latest { num_versions }. Without a policy, only the last version is kept. */
void cn_import_choose_versions(struct import *import);
/* Finds the model of a version, and writes its number as text. The caller frees found->path. */
int cn_import_find_model(const struct import *import, uint64_t number, char version[24],
                         struct import_model *found);

#endif
