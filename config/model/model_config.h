/* config/model/model_config.h - one model's settings: defaults, then its YAML, then the register
 * call.
 *
 * Keys are TorchServe's where it has one (reference: the model archiver's --config-file). Every
 * key, its type, range and default stand in model_options.def.
 */
#ifndef CN_CONFIG_MODEL_MODEL_CONFIG_H
#define CN_CONFIG_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/yaml/yaml.h"
#include "core/errors/error.h"
#include "core/memory/buf.h"

enum cn_durability {
    CN_DURABILITY_NONE = 0,    /* memory of the worker only */
    CN_DURABILITY_PROCESS = 1, /* survives kill -9 of worker and server, not of the machine */
    CN_DURABILITY_POWER = 2    /* fsync per batch */
};
/* "none" "process" "power"; -1 otherwise. */
int cn_durability_parse(struct cn_str word);
const char *cn_durability_word(enum cn_durability durability);

struct cn_model_io;

/* What becomes of the live sequences of other versions when a step without version comes to this
 * one. */
enum cn_swap_policy {
    CN_SWAP_PIN = 0,     /* they stay where they are */
    CN_SWAP_MIGRATE = 1, /* they come here, state and all, by the handler's migrate */
    CN_SWAP_RESET = 2,   /* they begin anew here */
    CN_SWAP_REJECT = 3   /* the step is refused */
};
/* "pin" "migrate" "reset" "reject"; -1 otherwise. */
int cn_swap_policy_parse(struct cn_str word);
const char *cn_swap_policy_word(enum cn_swap_policy policy);

/* What a step without start flag gets whose sequence a clock has closed, while its tombstone
 * stands. */
enum cn_on_expired {
    CN_EXPIRED_REFUSE =
        0, /* an error that says why, so that its client knows that the state is gone */
    CN_EXPIRED_RESTART = 1 /* a new sequence, and an answer that says so */
};
/* "refuse" "restart"; -1 otherwise. */
int cn_on_expired_parse(struct cn_str word);
const char *cn_on_expired_word(enum cn_on_expired what);

/* One row an option: CN_MODEL_OPTION(field, c_type, kind, yaml_path, default, min, max, help)
 * kind: UINT, BOOL, DURABILITY, SWAP or EXPIRED. "a.b" is key b in map a. */
struct cn_model_config {
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help) c_type field;
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    const struct cn_model_io
        *io; /* of a typed model; borrowed from whoever loaded it. NULL: untyped */
};

/* Called for each warning: "model-config.yaml:4:1: unknown key minWorker (did you mean
 * minWorkers?)" */
typedef void (*cn_config_warn_fn)(void *ctx, const char *line);

void cn_model_config_init(struct cn_model_config *config);
/* Applies a document over `config`. Unknown keys under `handler` and free top-level maps are the
 * handler's business: only top-level unknown scalars warn. Wrong types and ranges: CN_E_CONFIG with
 * name:line:column. */
int cn_model_config_apply(struct cn_model_config *config, const struct cn_yaml_doc *doc,
                          cn_config_warn_fn warn, void *ctx, struct cn_error *err);
/* cn_yaml_parse_file, apply and check in one; `name` stands in messages in place of the path. */
int cn_model_config_load(struct cn_model_config *config, const char *path, const char *name,
                         cn_config_warn_fn warn, void *ctx, struct cn_error *err);
/* Checks that the fields fit together (maxWorkers >= minWorkers ...). */
int cn_model_config_check(const struct cn_model_config *config, struct cn_error *err);
/* The page continuo.yaml(5): keys of a model's YAML and of the server's, as troff. */
void cn_model_config_man(FILE *out);

#endif
