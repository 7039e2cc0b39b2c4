/* torchserve/settings/torchserve_config.h - the `torchserve` command's flags, config.properties and
 * TS_ variables.
 *
 * They become a struct cn_server_config, as continuo's own flags do. Tables: torchserve_flags.def
 * (flag -> key) and properties.def (key -> option). Strongest first: CONTINUO_ variables, TS_
 * variables (if the file allows them), flags, file, TorchServe's default. Main thread, at start.
 */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_CONFIG_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_CONFIG_H

#include "config/server/server_config.h"

/* The TorchServe whose behaviour ours follows. */
#define CN_TORCHSERVE_VERSION "0.12.0"

enum cn_torchserve_flag {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) CN_TS_##id,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
    CN_TS_N_FLAGS
};

struct cn_torchserve_command {
    char *values[CN_TS_N_FLAGS]; /* NULL: not given; "true" for flags without value */
};

/* Both spellings (--a b, --a=b), and any beginning of a flag that no other has, as Python's
 * argparse. CN_E_BAD_REQUEST with argparse's words; `out` then needs no fini. */
int cn_torchserve_command_parse(int argc, char **argv, struct cn_torchserve_command *out,
                                struct cn_error *err);
void cn_torchserve_command_fini(struct cn_torchserve_command *command);
void cn_torchserve_help(FILE *out);
/* torchserve(1) as troff. */
void cn_torchserve_man(FILE *out);

/* What a start with this command line means. Finds and reads config.properties or the newest
 * snapshot. `warn` gets a line for each key that is unknown or has no effect. CN_E_CONFIG with
 * TorchServe's words where it has some; `out` then needs no fini. */
int cn_torchserve_config_load(const struct cn_torchserve_command *command, char **environment,
                              struct cn_server_config *out, cn_config_warn_fn warn, void *ctx,
                              struct cn_error *err);

/* "20261121073025123-snapshot.cfg" and its two like: does `name` have the form of a snapshot's? */
bool cn_snapshot_is_name(const char *name);

#endif
