/* core/log.h - one event, one line, key=value, on stderr or in a file. Any thread. */
#ifndef CN_CORE_LOG_H
#define CN_CORE_LOG_H

#include <stdbool.h>

enum cn_log_level { CN_LOG_ERROR, CN_LOG_WARN, CN_LOG_INFO, CN_LOG_DEBUG };

/* "error" "warn" "info" "debug"; -1 for other words. */
int cn_log_level_parse(const char *word);
void cn_log_set_level(enum cn_log_level level);
bool cn_log_enabled(enum cn_log_level level);
/* Name shown on each line: "continuo", "worker". Not copied. */
void cn_log_set_program(const char *program);

/* 2026-11-21T04:36:32.123Z info continuo event=worker_ready model=asr worker=2 ...
 * Values with spaces, quotes or control characters are the caller's to quote: use "%s" only for
 * words, and cn_log_quote for text from outside. One write(2) a line; lines over 4 kB are cut. */
void cn_log(enum cn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "text" with quotes and escapes into `out` (cut to its size, always NUL-terminated); returns out. */
const char *cn_log_quote(const char *text, unsigned long len, char *out, unsigned long out_bytes);

#endif
