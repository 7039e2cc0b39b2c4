/* torchserve/program/pid_file.h - which server runs: TorchServe's pid file. Main thread, at start
 * and end. */
#ifndef CN_TORCHSERVE_PROGRAM_PID_FILE_H
#define CN_TORCHSERVE_PROGRAM_PID_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/errors/error.h"

/* Python's tempfile.gettempdir() and ".model_server.pid", which is where TorchServe has it. */
void cn_pid_file_path(char **environment, char *out, size_t out_bytes);
/* The server that runs by this file, or 0: there is no file, or who wrote it is gone
 * (`is_stale`). */
pid_t cn_pid_file_running(const char *path, bool *is_stale);
/* This process's. CN_E_CONFLICT when another is there, CN_E_IO when it can't be written. */
int cn_pid_file_write(const char *path, struct cn_error *err);
/* Removes it if it names this process. */
void cn_pid_file_remove_own(const char *path);

#endif
