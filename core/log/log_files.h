/* core/log/log_files.h - TorchServe's log files in a folder, or standard output; rotated, limited
 * in size, and never waited for.
 *
 * A thread of its own writes the files. What the loops write (access log, metrics, workers' output)
 * goes into a ring buffer for each thread, without a lock. If the disk is slow or full, lines are
 * lost and counted, and no request waits. The server's own events are few, so cn_log writes them
 * itself. */
#ifndef CN_CORE_LOG_LOG_FILES_H
#define CN_CORE_LOG_LOG_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

enum cn_log_file {
    CN_LOG_SERVER,        /* ts_log.log: the events of cn_log */
    CN_LOG_MODEL,         /* model_log.log: what workers and handlers print */
    CN_LOG_ACCESS,        /* access_log.log */
    CN_LOG_METRICS,       /* ts_metrics.log */
    CN_LOG_MODEL_METRICS, /* model_metrics.log */
    CN_N_LOG_FILES
};
/* The name of a log file for people and for labels: "server", "model", "access", ... */
const char *cn_log_file_word(enum cn_log_file file);

struct cn_log_options {
    /* made if it is missing; NULL: the first two files are on standard error only, the others on
     * standard output */
    const char *dir;
    const char *metrics_dir; /* for the last two files; only with `dir`; NULL: in `dir`, too */
    uint64_t file_bytes;     /* a file that grows over this becomes NAME.1; 0: never */
    uint32_t keep;           /* NAME.1 ... NAME.keep; 0: an old file is deleted */
    uint64_t ring_bytes;     /* room for lines that wait, in each thread; at least 4096 */
};
/* Opens the files and starts the thread. Call it once, before the loops run. CN_E_IO: a folder or a
 * file cannot be opened. CN_E_CONFIG: a path is too long, or there is metrics_dir without dir. */
int cn_log_files_start(const struct cn_log_options *options, struct cn_error *err);
/* Writes the lines that wait, for at most two seconds, and goes back to standard error. Does
 * nothing if the files were not started. */
void cn_log_files_stop(void);
/* Opens all files again by their names, soon after the call, because another program has moved
 * them. Any thread. */
void cn_log_files_reopen(void);

/* Gives the calling thread a ring; call it when the thread starts. Without one its lines are
 * dropped. */
void cn_log_files_join(void);
/* Puts one whole line with its line end into the thread's ring. Never waits. The line is dropped
 * and counted if the thread has no ring, the ring is full, or the line is over 8 kB. */
void cn_log_files_put(enum cn_log_file file, const char *line, size_t len);
/* Counts a line that another writer of that file could not write. Any thread. */
void cn_log_files_lost(enum cn_log_file file);
/* The number of lines lost since the start, for want of room or because the file took no more. Any
 * thread. */
uint64_t cn_log_files_dropped(enum cn_log_file file);

#endif
