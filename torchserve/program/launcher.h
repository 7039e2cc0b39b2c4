/* torchserve/program/launcher.h - starts the server in the foreground or in the background, and
 * stops it. Main thread. */
#ifndef CN_TORCHSERVE_PROGRAM_LAUNCHER_H
#define CN_TORCHSERVE_PROGRAM_LAUNCHER_H

#include "torchserve/settings/torchserve_config.h"

/* Starts the server and returns the program's exit code. If it runs in the background, this returns
 * when the server is ready (0) or could not start (1). */
int cn_torchserve_start(const struct cn_torchserve_command *command, char **environment);
/* Stops the running server, waits until it is gone, and returns the program's exit code. */
int cn_torchserve_stop(char **environment);

#endif
