/* ctl/verbs/shells.h - what shells complete behind continuo-ctl, from the tables of its
 * commands and flags. */
#ifndef CN_CTL_VERBS_SHELLS_H
#define CN_CTL_VERBS_SHELLS_H

#include <stdio.h>

#include "core/errors/error.h"

/* CN_E_CONFIG: completions are not written for that shell. */
int cn_ctl_check_shell(const char *shell, struct cn_error *err);
/* Prints the script for "bash", "zsh" or "fish". */
void cn_ctl_completions(const char *shell, FILE *out);

#endif
