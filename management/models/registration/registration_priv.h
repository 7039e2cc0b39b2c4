/* management/models/registration/registration_priv.h - a registration while it is under way. */
#ifndef CN_MANAGEMENT_MODELS_REGISTRATION_REGISTRATION_PRIV_H
#define CN_MANAGEMENT_MODELS_REGISTRATION_REGISTRATION_PRIV_H

#include "management/models/download.h"
#include "management/models/lifecycle.h"
#include "management/models/lifecycle_priv.h"
#include "management/models/model_cache.h"

struct registration {
    struct cn_management *management;
    struct cn_register_call call;
    char *url, *model_name, *handler, *runtime, *config; /* copies of the call's strings */
    struct cn_download download;
    char *archive;             /* the file that was downloaded, until the version owns it */
    char *cached_url, *digest; /* digest: the one that the archive must have, or NULL */
    struct cn_cached *cached;  /* until the archive is unpacked */
    cn_lifecycle_done_fn done;
    void *ctx;
    struct cn_file_task task;
    int rc; /* result of the file thread's work */
    struct cn_error err;
    struct cn_model_about about; /* until the version owns it */
    struct cn_environment_want want;
    struct cn_version *version;
    struct cn_worker_pool_start start;
    struct cn_worker_pool_scale scale;
    bool published, scaled, answered;
};

/* Undoes a registration that has no queue yet: removes the files, then answers with reg->err. */
void cn_registration_discard(struct registration *reg);
/* Discards the registration and returns true if the server is stopping. */
bool cn_registration_stop_if_draining(struct registration *reg);
/* The pool's answer to the order of workers. */
void cn_registration_on_scaled(struct cn_worker_pool_scale *scale);
/* All loops know the version; `ctx` is the registration. */
void cn_registration_on_published(void *ctx);

#endif
