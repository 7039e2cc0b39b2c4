/* core/log/log.h - one event, one line, key=value or JSON, on stderr and in a file. Any thread. */
#ifndef CN_CORE_LOG_LOG_H
#define CN_CORE_LOG_LOG_H

#include <stdbool.h>

enum cn_log_level { CN_LOG_ERROR, CN_LOG_WARN, CN_LOG_INFO, CN_LOG_DEBUG };

/* "error" "warn" "info" "debug"; -1 for other words. */
int cn_log_level_parse(const char *word);
void cn_log_set_level(enum cn_log_level level);
bool cn_log_enabled(enum cn_log_level level);
/* One level alone; cn_log_set_level() enables those up to its level. */
void cn_log_enable(enum cn_log_level level, bool on);
/* Name shown on each line: "continuo", "worker". Not copied. */
void cn_log_set_program(const char *program);

/* Each line goes to this descriptor too; -1: to none. */
void cn_log_set_copy(int fd);
/* Lines as JSON objects: {"time":..., "level":..., "program":..., "event":..., ...}. */
void cn_log_set_json(bool json);

/* A traceback stays on its event's line, escaped: for a program whose lines another one reads. */
void cn_log_set_one_line(bool one_line);

/* 2026-11-21T04:36:32.123Z info continuo event=worker_ready model=asr worker=2 ... Values with
 * spaces, quotes or control characters are the caller's to quote: use "%s" only for words, and
 * cn_log_quote for text from outside. A last value traceback="..." is for people: outside of JSON
 * its lines follow the event's line, each behind four spaces. One write(2) an event; events over 4
 * kB are cut. */
void cn_log(enum cn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for what a worker printed: where there are files it goes into the model log. */
void cn_log_model(enum cn_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* `text`, of the form that cn_log takes (key=value key="quoted"), as the members of a JSON object:
 * "key":"value","n":7. Returns the length, at most `room`: what doesn't fit is left out member by
 * member. Words without = become the member "text". */
unsigned long cn_log_json_members(const char *text, char *out, unsigned long room);

/* "text" with quotes and escapes into `out` (cut to its size, always NUL-terminated); returns
 * out. */
const char *cn_log_quote(const char *text, unsigned long len, char *out, unsigned long out_bytes);
/* The inside of such a value, up to its closing quote, as text again; cut and NUL-terminated. `out`
 * may be where it stands itself. Returns the length. */
unsigned long cn_log_unquote(const char *quoted, char *out, unsigned long out_bytes);

#endif
