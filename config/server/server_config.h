/* config/server/server_config.h - the server's settings: flag, environment, file, default, in that
 * order.
 *
 * Every option stands in server_options.def with its flag, YAML key, environment name (CONTINUO_ +
 * flag in capitals), default and help; --help, --print-config and the manual page are made from it.
 */
#ifndef CN_CONFIG_SERVER_SERVER_CONFIG_H
#define CN_CONFIG_SERVER_SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/model/model_config.h"
#include "core/errors/error.h"

/* "http://127.0.0.1:8080", "http://[::1]:0", "unix:/path". */
struct cn_address {
    bool is_unix;
    bool is_https;
    char host[256]; /* or the socket's path */
    uint16_t port;  /* 0: any free one */
};
/* CN_E_CONFIG with the text and the allowed forms. default_port is used where none is named. */
int cn_address_parse(const char *text, uint16_t default_port, struct cn_address *out,
                     struct cn_error *err);

/* `--models a.mar b=b.mar`: name NULL means "the archive's own". `--models all`: one entry, name
 * NULL and file "all": every archive of the model store. */
struct cn_model_arg {
    char *name, *file;
};

/* What a file says about one model version, besides its own YAML. -1: nothing. */
struct cn_model_settings {
    char *name, *version;
    char *mar_name; /* of a snapshot: file in the model store, or path; else NULL */
    bool is_default;
    int64_t min_workers, max_workers, batch_size, max_batch_delay_ms;
    int64_t response_timeout_s, startup_timeout_s;
};

/* What is right where TorchServe and we differ on purpose: `continuo` is strict and says what is
 * wrong, `torchserve` does what TorchServe does. tests/differential compares. */
enum cn_dialect { CN_DIALECT_OWN, CN_DIALECT_TORCHSERVE };

enum cn_config_source { CN_FROM_DEFAULT, CN_FROM_FILE, CN_FROM_ENV, CN_FROM_FLAG };

struct cn_server_config {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help) c_type field;
#include "config/server/server_options.def"
#undef CN_OPTION
    struct cn_model_arg *models;
    uint32_t n_models;
    enum cn_config_source *sources; /* one per row of server_options.def, in order */
    enum cn_config_source models_source;

    enum cn_dialect dialect;

    /* Of `torchserve` only (torchserve/settings/torchserve_config.h). */
    struct cn_model_settings *settings; /* below the model's YAML */
    uint32_t n_settings;
    struct cn_model_settings
        *restored; /* from a snapshot: the models to load, and over their YAML */
    uint32_t n_restored;
    char *snapshot_dir;  /* NULL: no snapshots are written */
    char *snapshot_text; /* what each begins with */

    bool print_config, help, version;
    const char *help_section; /* of the command line; NULL: the usual options */
    bool print_man;           /* --print-man: continuo(1) as troff; for the build */
    bool print_yaml_man;      /* --print-yaml-man: continuo.yaml(5) */
    bool print_model_page;    /* --print-model-page: docs/model-config.md */
};

/* Reads flags, environment and the file that they name. Strings are the config's own.
 * Warnings (unknown keys, with nearest known name) go to `warn`. With --help, --version or one of
 * the --print-...man flags only that flag is set and all values are the defaults. On failure `out`
 * needs no fini. */
int cn_server_config_load(int argc, char **argv, char **environment, struct cn_server_config *out,
                          cn_config_warn_fn warn, void *ctx, struct cn_error *err);
void cn_server_config_fini(struct cn_server_config *config);
/* --help: a line an option. `section`: a name that cn_server_help_has, or NULL for the usual
 * options. */
void cn_server_config_help(const char *section, FILE *out);
/* --print-config: each value and where it came from, as YAML with comments; may be read back. */
void cn_server_config_print(const struct cn_server_config *config, FILE *out);
/* The page continuo(1), as troff. */
void cn_server_config_man(FILE *out);

#endif
