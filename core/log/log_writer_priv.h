/* core/log/log_writer_priv.h - the log files, for log_files.c. Its functions may be called on the
 * log thread, and on the main thread while there is none. */
#ifndef CN_CORE_LOG_LOG_WRITER_PRIV_H
#define CN_CORE_LOG_LOG_WRITER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/log/log_files.h"

/* Opens all files, or standard output and standard error where there is no folder. CN_E_CONFIG,
 * CN_E_IO; then nothing is open. */
int cn_log_writer_open(const struct cn_log_options *wanted, struct cn_error *err);
void cn_log_writer_close(void);
/* Are the logs in files of a folder? */
bool cn_log_writer_has_folder(void);
/* The descriptor of the server's log, whose number never changes. */
int cn_log_writer_server_fd(void);

/* Adds a line to what cn_log_writer_flush() writes. */
void cn_log_writer_add(enum cn_log_file which, const char *line, size_t len);
void cn_log_writer_flush(void);
/* Replaces the server's log if it is too large; other threads write to it. */
void cn_log_writer_look(void);
/* Opens all files anew, because somebody has moved them. */
void cn_log_writer_reopen(void);

/* Counts lines that are lost. Any thread. */
void cn_log_drop(enum cn_log_file file, uint64_t lines);

#endif
