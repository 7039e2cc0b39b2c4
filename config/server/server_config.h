/* config/server/server_config.h - the server's settings, from flags, environment, file and
 * defaults, the strongest first.
 *
 * server_options.def has every option with its flag, YAML key, environment name (CONTINUO_ and the
 * flag in capitals), default and help. --help, --print-config and the manual page are made from it.
 */
#ifndef CN_CONFIG_SERVER_SERVER_CONFIG_H
#define CN_CONFIG_SERVER_SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/model/model_config.h"
#include "core/errors/error.h"

/* An address: "http://127.0.0.1:8080", "http://[::1]:0" or "unix:/path". */
struct cn_address {
    bool is_unix;
    bool is_https;
    char host[256]; /* or the socket's path */
    uint16_t port;  /* 0: any free port */
};
/* Reads an address. default_port is used if the text names none. CN_E_CONFIG with the text and the
 * allowed forms. */
int cn_address_parse(const char *text, uint16_t default_port, struct cn_address *out,
                     struct cn_error *err);
/* Can only this machine reach the address? 127.0.0.0/8, ::1, localhost or a unix socket. */
bool cn_address_is_loopback(const struct cn_address *address);

/* A model to load at the start, from `--models a.mar b=b.mar`. Name NULL means the name in the
 * archive. `--models all` is one entry with name NULL and file "all": every archive of the model
 * store. */
struct cn_model_arg {
    char *name, *file;
};

/* What a file says about a model version besides its own YAML. -1: nothing is said. */
struct cn_model_settings {
    char *name, *version;
    /* the archive that a snapshot names: a file in the model store, or a path; otherwise NULL */
    char *mar_name;
    bool is_default;
    int64_t min_workers, max_workers, batch_size, max_batch_delay_ms;
    int64_t response_timeout_s, startup_timeout_s;
};

/* Values of the option page. */
enum cn_page { CN_PAGE_ON, CN_PAGE_READ_ONLY, CN_PAGE_OFF };

/* Whose behaviour is right where TorchServe and Continuo differ on purpose: `continuo` is strict
 * and reports what is wrong, `torchserve` does what TorchServe does. tests/differential compares
 * the two. */
enum cn_dialect { CN_DIALECT_OWN, CN_DIALECT_TORCHSERVE };

enum cn_config_source { CN_FROM_DEFAULT, CN_FROM_FILE, CN_FROM_ENV, CN_FROM_FLAG };

struct cn_server_config {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help) c_type field;
#include "config/server/server_options.def"
#undef CN_OPTION
    struct cn_model_arg *models;
    uint32_t n_models;
    enum cn_config_source *sources; /* one for each row of server_options.def, in that order */
    enum cn_config_source models_source;

    enum cn_dialect dialect;

    /* Used by the program torchserve only (torchserve/settings/torchserve_config.h). */
    struct cn_model_settings *settings; /* weaker than the model's YAML */
    uint32_t n_settings;
    struct cn_model_settings
        *restored; /* from a snapshot: the models to load, stronger than their YAML */
    uint32_t n_restored;
    char *snapshot_dir;  /* NULL: no snapshots are written */
    char *snapshot_text; /* the text with which each snapshot begins */

    bool print_config, help, version;
    const char *help_section; /* borrowed from the command line; NULL: the usual options */
    const char *completions;  /* --print-completions: for which shell; NULL: not given */
    bool print_man;           /* --print-man: continuo(1) as troff; for the build */
    bool print_yaml_man;      /* --print-yaml-man: continuo.yaml(5) */
    bool print_model_page;    /* --print-model-page: docs/model-config.md */
};

/* Must requests show a key, TorchServe's (token-auth) or a named one (keys)? */
static inline bool
cn_server_needs_keys(const struct cn_server_config *config)
{
    return config->token_auth || config->keys;
}

/* The authorities that sign the certificates of gRPC's clients; NULL: clients need none. */
static inline const char *
cn_server_grpc_client_ca(const struct cn_server_config *config)
{
    return config->grpc_client_ca ? config->grpc_client_ca : config->client_ca;
}

/* Reads flags, environment and the file that they name. Strings belong to the config, which
 * cn_server_config_fini frees. Warnings about unknown keys, with the nearest known name, go to
 * `warn`. With --help, --version or one of the --print-...man flags only that flag is set, and all
 * values are defaults. CN_E_CONFIG; `out` then needs no fini. */
int cn_server_config_load(int argc, char **argv, char **environment, struct cn_server_config *out,
                          cn_config_warn_fn warn, void *ctx, struct cn_error *err);
void cn_server_config_fini(struct cn_server_config *config);
/* Prints --help, one line for each option. `section` is a name that cn_server_help_has, or NULL for
 * the usual options. */
void cn_server_config_help(const char *section, FILE *out);
/* Prints --print-config: each value and where it came from, as YAML with comments that may be read
 * back. */
void cn_server_config_print(const struct cn_server_config *config, FILE *out);

/* Prints a flag and its help, as --help does: the help is wrapped at 100 columns into a column of
 * its own. Any thread. */
void cn_print_flag(FILE *out, const char *flag, const char *help);
/* Prints the completions for bash, zsh or fish. */
void cn_server_config_completions(const char *shell, FILE *out);
/* Prints the manual page continuo(1) as troff. */
void cn_server_config_man(FILE *out);

#endif
