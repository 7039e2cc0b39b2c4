/* config/model/model_options_priv.h - model_options.def as a table, and the keys of TorchServe that
 * have no effect here, for the files of this folder only. Any thread. */
#ifndef CN_CONFIG_MODEL_MODEL_OPTIONS_PRIV_H
#define CN_CONFIG_MODEL_MODEL_OPTIONS_PRIV_H

#include <stddef.h>

#include "config/model/model_config.h"

enum kind {
    KIND_UINT,
    KIND_BOOL,
    KIND_DURABILITY,
    KIND_SWAP,
    KIND_EXPIRED,
    KIND_PARALLEL,
    KIND_SWITCH,
    KIND_STORE,
    KIND_REPLICAS,
    KIND_WORD
};

struct row {
    const char *path; /* "a.b" */
    enum kind kind;
    size_t offset, bytes;
    uint64_t default_value, min, max;
    const char *help;
};

struct torchserve_key {
    const char *key, *harmless, *note; /* with the value `harmless` the key needs no warning */
};

/* Writes a value to the option's member, which has the type that its kind names. */
void cn_model_option_store(struct cn_model_config *config, const struct row *row, uint64_t value);
/* Is `path` a map that holds options, for example "state" of "state.durability"? */
bool cn_model_option_is_branch(const char *path);
/* The known name nearest to `key` in the map `prefix` ("" or "state."), or NULL. */
const char *cn_model_option_nearest(const char *prefix, struct cn_str key, char out[64]);
/* The row with this path, which may be written with underscores; NULL: there is none. */
const struct row *cn_model_option_find(const char *path);
/* The default of the row with this path, which must be there. */
uint64_t cn_model_option_default(const char *path);
/* The key of TorchServe with this name; NULL: there is none. */
const struct torchserve_key *cn_model_torchserve_key(struct cn_str key);

#endif
