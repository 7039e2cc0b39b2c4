/* config/server/server_options_priv.h - how the value of an option is stored, for server_config.c.
 */
#ifndef CN_CONFIG_SERVER_SERVER_OPTIONS_PRIV_H
#define CN_CONFIG_SERVER_SERVER_OPTIONS_PRIV_H

#include "config/server/server_options.h"

#define ENV_PREFIX "CONTINUO_"

/* Stores a copy of the text, or NULL: the option is not set. */
void cn_option_set_text(struct cn_server_config *config, const struct cn_option *option,
                        const char *text);
/* Stores the value of an option that is kept as a number. */
void cn_option_set_number(struct cn_server_config *config, const struct cn_option *option,
                          uint64_t value);
/* Describes for an error message what the option takes, in `out` if it must be made. */
const char *cn_option_expected(const struct cn_option *option, char out[96]);
/* Sets an option from text, whichever source it comes from. `where` is "--loops", "CONTINUO_LOOPS"
 * or "continuo.yaml:3:8: loops". CN_E_CONFIG. */
int cn_option_read(struct cn_server_config *config, const struct cn_option *option,
                   const char *where, const char *text, struct cn_error *err);

#endif
