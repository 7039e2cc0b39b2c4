/* config/server_options.h - options.def as a table; for this folder's files only. */
#ifndef CN_CONFIG_SERVER_OPTIONS_H
#define CN_CONFIG_SERVER_OPTIONS_H

#include <stddef.h>

#include "config/server_config.h"

enum cn_option_kind {
    CN_KIND_STRING,
    CN_KIND_UINT,
    CN_KIND_ADDRESS,
    CN_KIND_DURABILITY,
    CN_KIND_LOGLEVEL,
    CN_KIND_BOOL
};

struct cn_option {
    const char *flag, *yaml_key; /* yaml_key "": not in the file */
    enum cn_option_kind kind;
    size_t offset, bytes;
    const char *default_text; /* STRING, ADDRESS; NULL: not set */
    uint64_t default_number, min, max;
    const char *arg, *help;
};

extern const struct cn_option cn_server_options[];
extern const size_t cn_n_server_options;

/* Values as text: `out` of 32 bytes is used for numbers. NULL: not set. */
const char *cn_option_text(const struct cn_option *option, const struct cn_server_config *config,
                           char out[32]);
/* As cn_option_text, of the default. */
const char *cn_option_default_text(const struct cn_option *option, char out[32]);
/* "CONTINUO_MODEL_STORE" */
const char *cn_option_env_name(const char *flag, char out[64]);

/* config/server_models.c: appends what one word of --models says: FILE, NAME=FILE, or several with
 * commas. `where` stands in messages. */
int cn_server_models_add(struct cn_server_config *config, const char *where, struct cn_str word,
                         struct cn_error *err);
/* The YAML value: a word, a list of words, or a map NAME: FILE. `where` is "file:line:column". */
int cn_server_models_add_yaml(struct cn_server_config *config, const char *doc_name,
                              const struct cn_yaml *value, struct cn_error *err);
void cn_server_models_clear(struct cn_server_config *config);

#endif
