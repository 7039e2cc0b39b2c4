/* management/models/model_load.h - from an archive to what a worker needs to know. File thread.
 *
 * Unpack, manifest, model YAML, settings. Precedence: the register call, the
 * model's YAML, the server's settings for this model, its defaults for all.
 */
#ifndef CN_MANAGEMENT_MODELS_MODEL_LOAD_H
#define CN_MANAGEMENT_MODELS_MODEL_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "config/server/server_config.h"
#include "core/errors/error.h"
#include "proto/frame.h"

struct cn_unpacked;

/* A register call's own values; -1 and NULL: not given. Strings are borrowed. */
struct cn_model_request {
    const char *url, *model_name, *handler, *runtime;
    int64_t batch_size, max_batch_delay_ms, initial_workers, response_timeout_s, startup_timeout_s;
    int64_t max_workers; /* a restored model's */
    const char *config;  /* instead of the archive's YAML */
};

/* One loaded model version. Strings are its own; immutable once made. */
struct cn_model_about {
    char *name, *version, *url;
    char *dir; /* where its files are, absolute */
    char *
        archive; /* downloaded into the store, to be deleted when the model is unregistered; or NULL */
    char *unpacked; /* the folder to delete when the model goes; NULL: files are used in place */
    char *handler, *config_file;   /* files in dir; "" where there is none. torch: the handler
                                    * is the model itself */
    char *runtime;                 /* "lua", "c" or "torch" */
    char *torch_library;           /* absolute; "": the one beside the worker */
    uint64_t clock_jump_ms;        /* the server's --clock-jump */
    uint32_t busy_wait_us;         /* of its workers, before they sleep */
    bool says_as_torchserve;       /* its workers' lives are told in TorchServe's words, too */
    struct cn_model_config config; /* its io is the one below */
    struct cn_model_io *io;        /* NULL: the model is not typed */
    uint64_t stamp; /* of the archive as it was (model_store.h); 0: with other configuration */
};

/* `path`: what cn_model_store_resolve found. `place`: folder to unpack into, or to have what lies
 * unpacked in `kept` already. `server`: its defaults;
 * those for workers differ `at_startup`. On failure nothing is left behind. Errors:
 * CN_E_INVALID_MODEL, CN_E_CONFIG, CN_E_BAD_REQUEST. */
int cn_model_load(const char *path, const char *place, struct cn_unpacked *kept,
                  const struct cn_model_request *request, const struct cn_server_config *server,
                  bool at_startup, struct cn_model_about *out, struct cn_error *err);
/* Frees the strings; leaves the files. */
void cn_model_about_fini(struct cn_model_about *about);

/* Do its workers come from a zygote (management/zygote.h)? */
bool cn_model_preloads(const struct cn_model_about *about);
/* The LOAD frame's fields for a worker; index 0: for a zygote. Strings are borrowed from `about`
 * and `store_dir`. */
void cn_model_fill_load(const struct cn_model_about *about, const char *store_dir,
                        uint32_t worker_index, struct cn_load *load);

#endif
