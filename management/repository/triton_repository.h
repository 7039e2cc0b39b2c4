/* management/repository/triton_repository.h - serves a Triton model repository as it is
 * (--model-repository).
 *
 * Each model's folder is packed into archives below the state folder, which become the model store.
 * The repository itself is only read. What cannot be served is named in the log and in the index.
 */
#ifndef CN_MANAGEMENT_REPOSITORY_TRITON_REPOSITORY_H
#define CN_MANAGEMENT_REPOSITORY_TRITON_REPOSITORY_H

#include "config/server/server_config.h"
#include "core/errors/error.h"

/* A model that cannot be served, and why. */
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

/* Packs all models, before the server's threads run. A model that cannot be served does not make it
 * fail. CN_E_CONFIG: there is no such folder, or an option does not go with it; CN_E_IO. Free `out`
 * with cn_imported_fini() in any case. */
int cn_import_all(const struct cn_server_config *config, struct cn_imported *out,
                  struct cn_error *err);
void cn_imported_fini(struct cn_imported *imported);

/* Packs one model again, by its folder's name, into `store`. An archive whose bytes have not
 * changed keeps its times. CN_E_NOT_FOUND: the repository has no such folder. File thread. */
int cn_import_again(const char *repository, const char *store, const char *model,
                    struct cn_error *err);

#endif
