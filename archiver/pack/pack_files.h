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

/* What the spec names: its files, the handler unless it is a built-in one of TorchServe, the extra
 * files with their wildcards and folders. Each is hashed. On failure `out` needs no fini. */
int cn_pack_files_collect(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
                          struct cn_pack_files *out, struct cn_error *err);
/* All files of a model's folder but those in MAR-INF, sorted and hashed. */
int cn_pack_files_list(const char *dir, struct cn_pack_files *out, struct cn_error *err);
void cn_pack_files_fini(struct cn_pack_files *files);

#endif
