/* archiver/pack/pack_files.h - which files go into an archive, and under which names. Archiver
 * only. */
#ifndef CN_ARCHIVER_PACK_PACK_FILES_H
#define CN_ARCHIVER_PACK_PACK_FILES_H

#include "archiver/pack/pack.h"

struct cn_pack_file {
    char *name;   /* in the archive */
    char *source; /* on disk */
    uint64_t bytes;
    char sha256[65];
};

struct cn_pack_files {
    struct cn_pack_file *items; /* sorted by name once collected */
    uint32_t n_items, cap;
};

/* Collects and hashes the files that the spec names: the handler, unless it is one of TorchServe's
 * built-in ones, the model's files, and the extra files with their wildcards and folders. On
 * failure `out` needs no fini. */
int cn_pack_files_collect(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
                          struct cn_pack_files *out, struct cn_error *err);
/* Collects, sorts and hashes all files of a model's folder except those in MAR-INF. */
int cn_pack_files_list(const char *dir, struct cn_pack_files *out, struct cn_error *err);
void cn_pack_files_fini(struct cn_pack_files *files);

#endif
