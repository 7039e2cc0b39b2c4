/* torchserve/program/pid_file.h - TorchServe's pid file, which says which server runs. Main thread,
 * at start and end. */
#ifndef CN_TORCHSERVE_PROGRAM_PID_FILE_H
#define CN_TORCHSERVE_PROGRAM_PID_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/errors/error.h"

/* Writes the file's path to `out`: the folder that Python's tempfile.gettempdir() returns, and
 * ".model_server.pid". TorchServe has the file at the same place. */
void cn_pid_file_path(char **environment, char *out, size_t out_bytes);
/* Returns the pid of the running server that the file names, or 0 if there is none. `is_stale` is
 * set if there is a file but the process that wrote it is gone. */
pid_t cn_pid_file_running(const char *path, bool *is_stale);
/* Writes this process's pid. Returns CN_E_CONFLICT if another server runs, or CN_E_IO if the file
 * cannot be written. */
int cn_pid_file_write(const char *path, struct cn_error *err);
/* Removes the file if it names this process. */
void cn_pid_file_remove_own(const char *path);

#endif
