/* config/model/model_config.h - the settings of one model: the defaults, then its YAML, then the
 * register call.
 *
 * Keys are TorchServe's where it has one (reference: the model archiver's --config-file).
 * model_options.def has every key with its type, range and default. */
#ifndef CN_CONFIG_MODEL_MODEL_CONFIG_H
#define CN_CONFIG_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/model/stream_input.h"
#include "config/state_store_url.h"
#include "config/yaml/yaml.h"
#include "core/errors/error.h"
#include "core/memory/buf.h"

enum cn_durability {
    CN_DURABILITY_NONE = 0, /* kept in the worker's memory only */
    /* survives kill -9 of the worker and the server, but not a power failure */
    CN_DURABILITY_PROCESS = 1,
    CN_DURABILITY_POWER = 2 /* also survives a power failure: fsync for each batch */
};
/* The value of "none", "process" or "power"; -1 for any other word. */
int cn_durability_parse(struct cn_str word);
const char *cn_durability_word(enum cn_durability durability);

struct cn_model_io;

/* What happens to live sequences of other versions when a step without a version comes to this one.
 */
enum cn_swap_policy {
    CN_SWAP_PIN = 0,     /* they stay where they are */
    CN_SWAP_MIGRATE = 1, /* they come here with their state, by the handler's migrate function */
    CN_SWAP_RESET = 2,   /* they begin anew here */
    CN_SWAP_REJECT = 3   /* the step is refused */
};
/* The value of "pin", "migrate", "reset" or "reject"; -1 for any other word. */
int cn_swap_policy_parse(struct cn_str word);
const char *cn_swap_policy_word(enum cn_swap_policy policy);

/* What a step without START gets if its sequence was closed by a timeout and the tombstone is still
 * there. */
enum cn_on_expired {
    CN_EXPIRED_REFUSE =
        0, /* an error with the reason, so that the client knows that the state is gone */
    CN_EXPIRED_RESTART = 1 /* a new sequence, and an answer that says so */
};
/* The value of "refuse" or "restart"; -1 for any other word. */
int cn_on_expired_parse(struct cn_str word);
const char *cn_on_expired_word(enum cn_on_expired what);

/* How the work of one worker is distributed, in TorchServe's words. TorchServe's other types (pp,
 * tp, pptp) have several processes for one worker, so a model with one of them is refused. */
enum cn_parallel {
    CN_PARALLEL_NONE = 0,
    CN_PARALLEL_CUSTOM = 1 /* the handler distributes it */
};
/* The value of "" or "custom"; -1 for any other word. */
int cn_parallel_parse(struct cn_str word);
const char *cn_parallel_word(enum cn_parallel parallel);

/* One member for each row of model_options.def: CN_MODEL_OPTION(field, c_type, kind, yaml_path,
 * default, min, max, help). The kind is UINT, BOOL, DURABILITY, SWAP, EXPIRED, PARALLEL, SWITCH,
 * STORE, REPLICAS or WORD; "a.b" is key b in map a. */
struct cn_model_config {
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help) c_type field;
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    uint32_t store_wait_ms; /* the server's state-store-wait, for models loaded at its start */
    const struct cn_model_io
        /* the tensors of a typed model, borrowed from the code that loaded it; NULL: the model
         * is untyped */
        *io;
};

/* Called for each warning: "model-config.yaml:4:1: unknown key minWorker (did you mean
 * minWorkers?)" */
typedef void (*cn_config_warn_fn)(void *ctx, const char *line);

/* Returns whether this warning concerns a model of this runtime: "lua", "c", "python" and so on.
 * Those of deviceType and deviceIds concern handlers in Lua and C only, and the YAML alone does not
 * tell the runtime. */
bool cn_model_config_warning_concerns(const char *line, const char *runtime);

/* Sets all options to their defaults. */
void cn_model_config_init(struct cn_model_config *config);
/* Applies a document to `config`. Maps that are not known, and unknown keys under `handler`, belong
 * to the handler; an unknown scalar at the top causes a warning. CN_E_CONFIG with name:line:column
 * for a wrong type or range. */
int cn_model_config_apply(struct cn_model_config *config, const struct cn_yaml_doc *doc,
                          cn_config_warn_fn warn, void *ctx, struct cn_error *err);
/* Reads a file, applies and checks it, and with `tensors` also the tensors and batches that it
 * declares. `name` is used in messages instead of the path. */
int cn_model_config_load(struct cn_model_config *config, const char *path, const char *name,
                         bool tensors, cn_config_warn_fn warn, void *ctx, struct cn_error *err);
/* Checks that the settings fit together, for example maxWorkers >= minWorkers. CN_E_CONFIG. */
int cn_model_config_check(const struct cn_model_config *config, struct cn_error *err);
/* Prints the manual page continuo.yaml(5) as troff: the keys of a model's YAML and of the server's.
 */
void cn_model_config_man(FILE *out);

/* For a model without a handler. No handler reads unknown keys of its YAML, so a key that is nearly
 * a known one must be a typing error: it is refused. Returns 0, or CN_E_CONFIG with the nearest
 * known key. */
int cn_model_config_check_keys(const struct cn_yaml_doc *doc, struct cn_error *err);

#endif
