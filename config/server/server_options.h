/* config/server/server_options.h - server_options.def as a table, for the files of this folder
 * only. */
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
    CN_KIND_TUNING, /* a list of core/tuning/tuning.h, kept as text */
    CN_KIND_STORE,  /* embedded or a URL of config/state_store_url.h, kept as text */
    CN_KIND_RATE,   /* from 0 to 1 with up to six decimals, stored in millionths */
    CN_KIND_WORD    /* one of the words of `arg`, "text|json"; stored as its number */
};

struct cn_option {
    const char *flag, *yaml_key; /* yaml_key "": the option cannot be in the file */
    enum cn_option_kind kind;
    size_t offset, bytes;
    const char *default_text; /* the default of an option that is kept as text; NULL: not set */
    uint64_t default_number, min, max;
    const char *arg, *help;
};

/* The number of rows of server_options.def. */
enum {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help)              \
    CN_OPTION_##field,
#include "config/server/server_options.def"
#undef CN_OPTION
    CN_N_OPTIONS
};
extern const struct cn_option cn_server_options[CN_N_OPTIONS];

/* A value as text; NULL: not set. Numbers are written to `out`. */
const char *cn_option_text(const struct cn_option *option, const struct cn_server_config *config,
                           char out[32]);
/* The default as text, like cn_option_text. */
const char *cn_option_default_text(const struct cn_option *option, char out[32]);
/* Is the option's value kept as char *? */
bool cn_option_is_text(const struct cn_option *option);
/* Sets an option from text. `where` is used in messages. CN_E_CONFIG. */
int cn_option_set(struct cn_server_config *config, const struct cn_option *option,
                  enum cn_config_source source, const char *where, const char *text,
                  struct cn_error *err);
/* The environment name of a flag: "CONTINUO_MODEL_STORE" of "model-store". */
const char *cn_option_env_name(const char *flag, char out[64]);

/* The value of a variable; NULL if it is not there or empty. */
const char *cn_environment_value(char **environment, const char *name);

/* In server_config.c, for the other ways to fill a config: sets all options to their defaults. */
void cn_server_config_set_defaults(struct cn_server_config *config);
/* Sets the values whose default is another option's value, when all sources have been read. */
void cn_server_config_settle(struct cn_server_config *config);
/* Applies the CONTINUO_... variables, CONTINUO_MODELS among them. */
int cn_server_config_apply_environment(struct cn_server_config *config, char **environment,
                                       struct cn_error *err);

/* The option with this flag; NULL: there is none. */
const struct cn_option *cn_option_find(struct cn_str flag);
/* Returns the nearest known name, "models" included, or NULL. With `flags`, names that only the
 * command line can have count, too. */
const char *cn_option_nearest(struct cn_str name, bool flags);

/* In server_flags.c: what the command line says, before it is applied. */
struct cn_command_line {
    const char *values[CN_N_OPTIONS]; /* the last value given for each option, or NULL */
    bool has_models;
    int n_args;
    char **args;
};
/* Reads args[*at] and its values; *at is then the last one read. --models and flags without a value
 * are stored in `config` at once, since no stronger source can follow. CN_E_CONFIG. */
int cn_command_line_take(struct cn_server_config *config, struct cn_command_line *line, int *at,
                         struct cn_error *err);
/* Is this a section of --help, or "all"? */
bool cn_server_help_has(const char *section);
/* Was there a flag that only asks for a text, such as --help? */
bool cn_config_only_informs(const struct cn_server_config *config);

/* In server_models.c: appends what a word of --models says: FILE, NAME=FILE, or several with
 * commas. `where` is used in messages. CN_E_CONFIG. */
int cn_server_models_add(struct cn_server_config *config, const char *where, struct cn_str word,
                         struct cn_error *err);
/* Appends what the YAML value of `models` says: a word, a list of words, or a map NAME: FILE.
 * CN_E_CONFIG with file:line:column. */
int cn_server_models_add_yaml(struct cn_server_config *config, const char *doc_name,
                              const struct cn_yaml *value, struct cn_error *err);
void cn_server_models_clear(struct cn_server_config *config);

/* Writes text for a manual page, and escapes troff's special characters. */
void cn_man_text(FILE *out, const char *text);

/* Frees settings of models and their texts. */
void cn_model_settings_free(struct cn_model_settings *settings, uint32_t count);

#endif
