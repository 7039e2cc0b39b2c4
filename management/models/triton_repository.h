/* management/models/triton_repository.h - a Triton model repository as it lies there, served
 * (--model-repository).
 *
 * Each model's folder is packed into archives below the state folder, which become the model store;
 * the repository itself is only read. What can't be served is told in the log and in the index.
 */
#ifndef CN_MANAGEMENT_MODELS_TRITON_REPOSITORY_H
#define CN_MANAGEMENT_MODELS_TRITON_REPOSITORY_H

#include "config/server/server_config.h"
#include "core/errors/error.h"

/* A model that can't be served, and why. */
struct cn_not_imported {
    char *model, *reason;
};

struct cn_imported {
    char *store;                 /* the folder with the archives */
    struct cn_model_arg *models; /* what --models means: each version's archive with its name */
    uint32_t n_models;
    struct cn_not_imported *refused;
    uint32_t n_refused;
};

/* Before the server's threads: packs what is there. A model that can't be served is no failure.
 * CN_E_CONFIG: no such folder, or options that don't go with it; CN_E_IO. `out` needs a fini then,
 * too. */
int cn_import_all(const struct cn_server_config *config, struct cn_imported *out,
                  struct cn_error *err);
void cn_imported_fini(struct cn_imported *imported);

/* Packs one model again, by its folder's name, into `store`. An archive whose bytes are what they
 * were keeps its times. CN_E_NOT_FOUND: the repository has no such folder. File thread. */
int cn_import_again(const char *repository, const char *store, const char *model,
                    struct cn_error *err);

#endif
