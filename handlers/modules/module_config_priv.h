/* handlers/modules/module_config_priv.h - what the two files that read a module's settings share.
 * Worker's thread. */
#ifndef CN_HANDLERS_MODULES_MODULE_CONFIG_PRIV_H
#define CN_HANDLERS_MODULES_MODULE_CONFIG_PRIV_H

#include "config/yaml/yaml.h"
#include "handlers/modules/module_config.h"

struct cn_module_parse {
    struct cn_module_config *config;
    const char *name; /* name of the document */
    struct cn_error *err;
};

/* module_config.c. Refuses the value of the setting `key`, at its line and column. Returns
 * CN_E_CONFIG. */
int cn_module_refuse(const struct cn_module_parse *parse, const struct cn_yaml *at, const char *key,
                     const char *expected);

/* module_bindings.c. Reads attributes, arguments and results, and checks that nothing that is
 * declared is left out. */
int cn_module_read_bindings(const struct cn_module_parse *parse, const struct cn_yaml *settings);
/* Returns the index of the declared input with this name, or -1. */
int32_t cn_module_find_input(const struct cn_model_io *io, struct cn_str name);

#endif
