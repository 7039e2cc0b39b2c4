/* torchserve/settings/torchserve_config.h - reads the `torchserve` command's flags,
 * config.properties and TS_ variables.
 *
 * They become a struct cn_server_config, as continuo's own flags do. There are two tables:
 * torchserve_flags.def (from flag to key) and properties.def (from key to option). If several
 * places set a value, the first of these counts: CONTINUO_ variables, TS_ variables (if the file
 * allows them), flags, the file, TorchServe's default. Main thread, at start.
 */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_CONFIG_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_CONFIG_H

#include "config/server/server_config.h"

/* The version of TorchServe whose behaviour we follow. */
#define CN_TORCHSERVE_VERSION "0.12.0"

enum cn_torchserve_flag {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) CN_TS_##id,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
    CN_TS_N_FLAGS
};

struct cn_torchserve_command {
    char *values[CN_TS_N_FLAGS]; /* NULL if not given; "true" for a flag without a value */
};

/* Reads the command line as Python's argparse does. Both spellings are accepted (--a b and --a=b),
 * and so is any beginning of a flag that fits no other flag. Returns CN_E_BAD_REQUEST with
 * argparse's words; `out` then needs no fini. */
int cn_torchserve_command_parse(int argc, char **argv, struct cn_torchserve_command *out,
                                struct cn_error *err);
void cn_torchserve_command_fini(struct cn_torchserve_command *command);
void cn_torchserve_help(FILE *out);
/* Prints the manual page torchserve(1) as troff. */
void cn_torchserve_man(FILE *out);

/* Finds and reads config.properties or the newest snapshot, and works out the server's
 * configuration for this command line. `warn` gets a line for each key that is unknown or has no
 * effect. Returns CN_E_CONFIG, with TorchServe's message if it has one for this error; `out` then
 * needs no fini. */
int cn_torchserve_config_load(const struct cn_torchserve_command *command, char **environment,
                              struct cn_server_config *out, cn_config_warn_fn warn, void *ctx,
                              struct cn_error *err);

/* Returns whether `name` has the form of a snapshot's name: "20261121073025123-snapshot.cfg" or one
 * of the two similar forms. */
bool cn_snapshot_is_name(const char *name);

#endif
