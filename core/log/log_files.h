/* core/log/log_files.h - TorchServe's log files in a folder, or stdout; rotated, bounded, never
 * waited for.
 *
 * A thread of its own writes the files. What loops write (access log, metrics, workers' output)
 * goes into a ring, one a thread, without a lock: a disk that is slow or full costs lines, which
 * are counted, and never a request. The server's own events are few: cn_log writes them itself.
 */
#ifndef CN_CORE_LOG_LOG_FILES_H
#define CN_CORE_LOG_LOG_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

enum cn_log_file {
    CN_LOG_SERVER,        /* ts_log.log: what cn_log says */
    CN_LOG_MODEL,         /* model_log.log: what workers and handlers print */
    CN_LOG_ACCESS,        /* access_log.log */
    CN_LOG_METRICS,       /* ts_metrics.log */
    CN_LOG_MODEL_METRICS, /* model_metrics.log */
    CN_N_LOG_FILES
};
/* "server", "model", "access", ... : for people and labels. */
const char *cn_log_file_word(enum cn_log_file file);

struct cn_log_options {
    const char
        *dir; /* made if missing; NULL: the first two are on stderr only, the rest on stdout */
    const char *metrics_dir; /* of the last two; NULL: `dir`. Not without that */
    uint64_t file_bytes;     /* a file over this becomes NAME.1; 0: never */
    uint32_t keep;           /* NAME.1 ... NAME.keep; 0: an old file is deleted */
    uint64_t ring_bytes;     /* of lines that wait, per thread; at least 4096 */
};
/* Once, before loops run. CN_E_IO: a folder or a file can't be opened. CN_E_CONFIG: a path that is
 * too long, or metrics_dir alone. */
int cn_log_files_start(const struct cn_log_options *options, struct cn_error *err);
/* Writes what waits (for two seconds at most), then goes back to stderr. Harmless when not
 * started. */
void cn_log_files_stop(void);
/* Any thread: opens all files again by their names, soon: somebody else has moved them. */
void cn_log_files_reopen(void);

/* The calling thread gets a ring; at its start. Without one its lines are dropped. */
void cn_log_files_join(void);
/* One whole line, with its line end. From a thread that joined, otherwise it is dropped. Never
 * waits. Lines over 8 kB are dropped too. */
void cn_log_files_put(enum cn_log_file file, const char *line, size_t len);
/* Any thread: a line that another writer of that file could not write. */
void cn_log_files_lost(enum cn_log_file file);
/* Any thread: lines that were lost, since the start: no room, or the file took no more. */
uint64_t cn_log_files_dropped(enum cn_log_file file);

#endif
