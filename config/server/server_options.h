/* config/server/server_options.h - server_options.def as a table; for this folder's files only. */
#ifndef CN_CONFIG_SERVER_SERVER_OPTIONS_H
#define CN_CONFIG_SERVER_SERVER_OPTIONS_H

#include <stddef.h>

#include "config/server/server_config.h"

enum cn_option_kind {
    CN_KIND_STRING,
    CN_KIND_UINT,
    CN_KIND_ADDRESS,
    CN_KIND_OPTIONAL_ADDRESS,
    CN_KIND_DURABILITY,
    CN_KIND_LOGLEVEL,
    CN_KIND_BOOL,
    CN_KIND_WORD /* one of the words of `arg`, "text|json": its number */
};

struct cn_option {
    const char *flag, *yaml_key; /* yaml_key "": not in the file */
    enum cn_option_kind kind;
    size_t offset, bytes;
    const char *default_text; /* of those kept as char *; NULL: not set */
    uint64_t default_number, min, max;
    const char *arg, *help;
};

/* How many rows server_options.def has. */
enum {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help)              \
    CN_OPTION_##field,
#include "config/server/server_options.def"
#undef CN_OPTION
    CN_N_OPTIONS
};
extern const struct cn_option cn_server_options[CN_N_OPTIONS];

/* Values as text: `out` of 32 bytes is used for numbers. NULL: not set. */
const char *cn_option_text(const struct cn_option *option, const struct cn_server_config *config,
                           char out[32]);
/* As cn_option_text, of the default. */
const char *cn_option_default_text(const struct cn_option *option, char out[32]);
/* "CONTINUO_MODEL_STORE" */
const char *cn_option_env_name(const char *flag, char out[64]);

/* An empty variable counts as none: NULL. */
const char *cn_environment_value(char **environment, const char *name);

/* config/server/server_config.c, for the other ways to fill a config. */
void cn_server_config_set_defaults(struct cn_server_config *config);
/* Once all sources are read: values whose default is another option's. */
void cn_server_config_settle(struct cn_server_config *config);
/* A value as text. `where` stands in messages. CN_E_CONFIG. */
int cn_option_set(struct cn_server_config *config, const struct cn_option *option,
                  enum cn_config_source source, const char *where, const char *text,
                  struct cn_error *err);
/* CONTINUO_... variables over what is there, CONTINUO_MODELS too. */
int cn_server_config_apply_environment(struct cn_server_config *config, char **environment,
                                       struct cn_error *err);
/* Is its value kept as char *? */
bool cn_option_is_text(const struct cn_option *option);

/* NULL: unknown. */
const struct cn_option *cn_option_find(struct cn_str flag);
/* The nearest name, "models" among them, or NULL. `flags`: also those that aren't in the file. */
const char *cn_option_nearest(struct cn_str name, bool flags);

/* config/server/server_flags.c: what the command line said, before it is applied. */
struct cn_command_line {
    const char *values[CN_N_OPTIONS]; /* the last one given, or NULL */
    bool has_models;
    int n_args;
    char **args;
};
/* Takes args[*at] and its values; *at is then the last one taken. --models and flags without a
 * value go to `config` at once: nothing stronger can come. */
int cn_command_line_take(struct cn_server_config *config, struct cn_command_line *line, int *at,
                         struct cn_error *err);
/* Is it a section of --help, or "all"? */
bool cn_server_help_has(const char *section);
/* Was there a flag that only asks for text, --help or its like? */
bool cn_config_only_informs(const struct cn_server_config *config);

/* config/server/server_models.c: appends what one word of --models says: FILE, NAME=FILE, or
 * several with commas. `where` stands in messages. */
int cn_server_models_add(struct cn_server_config *config, const char *where, struct cn_str word,
                         struct cn_error *err);
/* The YAML value: a word, a list of words, or a map NAME: FILE. `where` is "file:line:column". */
int cn_server_models_add_yaml(struct cn_server_config *config, const char *doc_name,
                              const struct cn_yaml *value, struct cn_error *err);
void cn_server_models_clear(struct cn_server_config *config);

/* Writes text for a manual page, with troff's own characters escaped. */
void cn_man_text(FILE *out, const char *text);

/* Frees settings of models with their texts. */
void cn_model_settings_free(struct cn_model_settings *settings, uint32_t count);

#endif
