/* torchserve/program/launcher.h - the server in the foreground or behind, and its end. Main
 * thread. */
#ifndef CN_TORCHSERVE_PROGRAM_LAUNCHER_H
#define CN_TORCHSERVE_PROGRAM_LAUNCHER_H

#include "torchserve/settings/torchserve_config.h"

/* Starts the server; the exit code of the program. In the background it returns when the server is
 * up (0) or could not start (1). */
int cn_torchserve_start(const struct cn_torchserve_command *command, char **environment);
/* Stops the one that runs and waits until it is gone; the exit code. */
int cn_torchserve_stop(char **environment);

#endif
