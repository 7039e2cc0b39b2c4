/* management/models/model_load.h - from an archive to what a worker needs to know. File thread.
 *
 * An archive is unpacked, its manifest and YAML are read, and settings are laid over each other.
 * The strongest is the register call, then the model's YAML, the server's settings for this model,
 * and the server's defaults.
 */
#ifndef CN_MANAGEMENT_MODELS_MODEL_LOAD_H
#define CN_MANAGEMENT_MODELS_MODEL_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "config/server/server_config.h"
#include "core/errors/error.h"
#include "management/workers/bounds.h"
#include "proto/frame.h"

struct cn_unpacked;

/* The values of a register call; -1 and NULL: not given. Strings are borrowed. */
struct cn_model_request {
    const char *url, *model_name, *handler, *runtime;
    int64_t batch_size, max_batch_delay_ms, initial_workers, response_timeout_s, startup_timeout_s;
    int64_t max_workers; /* only for a model restored from a snapshot */
    const char *config;  /* YAML that is laid over the archive's */
};

/* One loaded model version. It owns its strings and never changes once made. */
struct cn_model_about {
    char *name, *version, *url;
    char *dir; /* where its files are, absolute */
    /* file that was downloaded into the store, deleted when the model is unregistered; or NULL */
    char *archive;
    char *digest;   /* SHA-256 of the archive; only with cluster-models, else NULL */
    char *unpacked; /* the folder to delete when the model goes; NULL: files are used in place */
    char *handler, *config_file;   /* files in dir; "" where there is none. torch: the handler
                                    * is the model itself */
    char *runtime;                 /* "lua", "c", "torch" or "python" */
    char *python, *python_package; /* absolute: the interpreter, and the folder with the package
                                    * that it runs; NULL for other runtimes */
    /* the file in dir whose packages are to be installed before its workers start, into an
     * environment whose interpreter then replaces `python`; NULL: none */
    char *requirements;
    char *torch_library;           /* absolute; "": the one beside the worker */
    char *onnxruntime;             /* absolute; "": the package of python3 */
    char *service_envelope;        /* the server's option, "none"; for Python handlers */
    char *metrics;                 /* JSON: the handlers' metrics of metrics.yaml; NULL: not Python
                                    * (handler_metrics.h) */
    uint64_t clock_jump_ms;        /* the server's --clock-jump */
    char *temp_dir;                /* of its workers, absolute, deleted with it; "": none */
    char *worker_files;            /* what the operator lets its workers read, with ':' between */
    uint32_t walls;                /* the server's --worker-walls (enum cn_walls_mode) */
    struct cn_bounds bounds;       /* what a worker may use of the machine */
    uint32_t busy_wait_us;         /* how long its workers poll for work before they sleep */
    bool says_as_torchserve;       /* the log tells its workers' lives in TorchServe's words, too */
    struct cn_model_config config; /* its io is the one below */
    struct cn_model_io *io;        /* NULL: the model is not typed */
    /* stamp of the archive when it was loaded (model_store.h); 0: it has a configuration of the
     * load */
    uint64_t stamp;
};

/* Loads the archive at `path` (from cn_model_store_resolve). `place`: the folder to unpack into, or
 * to which a folder of `kept` is renamed. `server`: the defaults; the number of workers differs
 * `at_startup`. If it fails, nothing is left on the disk. Errors: CN_E_INVALID_MODEL, CN_E_CONFIG,
 * CN_E_BAD_REQUEST. */
int cn_model_load(const char *path, const char *place, struct cn_unpacked *kept,
                  const struct cn_model_request *request, const struct cn_server_config *server,
                  bool at_startup, struct cn_model_about *out, struct cn_error *err);
/* Any thread: deletes the unpacked archive and the workers' temporary files. */
void cn_model_about_remove_files(const struct cn_model_about *about);
/* Frees the strings; leaves the files. */
void cn_model_about_fini(struct cn_model_about *about);

/* Are its workers forked from a zygote (management/workers/zygote_workers.c)? */
bool cn_model_preloads(const struct cn_model_about *about);
/* Fills in the LOAD frame for a worker, or with index 0 for a zygote. Strings are borrowed from
 * `about` and `store_dir`. */
void cn_model_fill_load(const struct cn_model_about *about, const char *store_dir,
                        uint32_t worker_index, struct cn_load *load);

#endif
