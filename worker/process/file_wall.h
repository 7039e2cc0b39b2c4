/* worker/process/file_wall.h - the wall around a worker's files: which ones the code of a model may
 * read and write. It is made with Landlock, which any user may use. */
#ifndef CN_WORKER_PROCESS_FILE_WALL_H
#define CN_WORKER_PROCESS_FILE_WALL_H

#include "proto/frame.h"

/* From now on the calling process, and all that it starts, can use these files only:
 * - to read: the model's folder, programs and libraries of the system, and what the runtime
 *   (load->runtime_files) and the operator (load->worker_files) name
 * - to write: the model's store and its folder for temporary files
 *
 * Files that are open already stay usable. Needs PR_SET_NO_NEW_PRIVS. Returns 0, or -1 with errno;
 * ENOTUNIQ: the process has other threads, which would stay outside of the wall; EOPNOTSUPP: the
 * kernel's Landlock is too old. */
int cn_file_wall_build(const struct cn_load *load);

#endif
