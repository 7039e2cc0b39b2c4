/* torchserve/settings/torchserve_sources_priv.h - the properties while they are read and applied.
 */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_SOURCES_PRIV_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_SOURCES_PRIV_H

#include "torchserve/settings/properties.h"
#include "torchserve/settings/torchserve_config.h"

enum property_kind { TEXT, INT, ADDRESS, BOOL, NOT, MINUTES, SPECIAL, NOTE };

/* A row of properties.def. */
struct row {
    const char *key;
    enum property_kind kind;
    const char *env, *otherwise, *flag, *text;
};

enum {
    CN_N_TORCHSERVE_ROWS = 0
#define CN_PROPERTY(key, kind, env, otherwise, flag, text) +1
#include "torchserve/settings/properties.def"
#undef CN_PROPERTY
};
extern const struct row cn_torchserve_rows[CN_N_TORCHSERVE_ROWS];
/* The flags' names, by enum cn_torchserve_flag. */
extern const char *const cn_torchserve_flag_names[CN_TS_N_FLAGS];

struct loading {
    const struct cn_torchserve_command *command;
    char **environment;
    struct cn_properties properties;
    struct cn_server_config *config;
    cn_config_warn_fn warn;
    void *ctx;
};

/* The folder of the logs, in which snapshots are, too. */
const char *cn_torchserve_logs_dir(char **environment);
/* What TorchServe takes for true. */
bool cn_torchserve_is_true(const char *text);
/* The value of a key; NULL: it is not set, or empty. */
const char *cn_torchserve_value(const struct loading *loading, const char *key);
/* Puts the properties of all sources together. CN_E_CONFIG. */
int cn_torchserve_gather(struct loading *loading, struct cn_error *err);

#endif
