/* worker/process/library_folders.h - where a shared library looks for the ones that it needs.
 * Any thread. */
#ifndef CN_WORKER_PROCESS_LIBRARY_FOLDERS_H
#define CN_WORKER_PROCESS_LIBRARY_FOLDERS_H

/* Calls `add` for each folder of the library's RUNPATH or RPATH, with $ORIGIN replaced. The file is
 * read and not loaded. Does nothing if it is missing or not a library of 64 bits. */
void cn_library_folders(const char *path, void (*add)(void *ctx, const char *folder), void *ctx);

#endif
