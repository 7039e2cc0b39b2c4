/* core/log/log.h - the log: one event is one line of key=value pairs or JSON, on standard error and
 * in a file. Any thread. */
#ifndef CN_CORE_LOG_LOG_H
#define CN_CORE_LOG_LOG_H

#include <stdbool.h>

enum cn_log_level { CN_LOG_ERROR, CN_LOG_WARN, CN_LOG_INFO, CN_LOG_DEBUG };

/* The level of the words "error", "warn", "info" and "debug"; -1 for any other word. */
int cn_log_level_parse(const char *word);
void cn_log_set_level(enum cn_log_level level);
bool cn_log_enabled(enum cn_log_level level);
/* Switches one level alone; cn_log_set_level enables all up to its level. */
void cn_log_enable(enum cn_log_level level, bool on);
/* The program's name on each line: "continuo" or "worker". The pointer is kept, not the text. */
void cn_log_set_program(const char *program);

/* Writes each line to this descriptor, too; -1: to none. */
void cn_log_set_copy(int fd);
/* Writes each line as a JSON object: {"time":..., "level":..., "program":..., "event":..., ...}. */
void cn_log_set_json(bool json);

/* Keeps a traceback on the line of its event, escaped, for a program whose lines are read by
 * another one. */
void cn_log_set_one_line(bool one_line);

/* Writes one event, for example
 *   2026-11-21T04:36:32.123Z info continuo event=worker_ready model=asr worker=2
 * The caller must quote values that may contain spaces, quotes or control characters: use "%s" only
 * for words, and cn_log_quote for text from outside. A last value traceback="..." is meant for
 * people: except in JSON its lines follow the event's line, each after four spaces. Each event is
 * one write(2), and is cut at 4 kB. */
void cn_log(enum cn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes what a worker printed. If there are log files, it goes to the model log. */
void cn_log_model(enum cn_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes `text`, in the form that cn_log takes (key=value key="quoted"), as members of a JSON
 * object: "key":"value","n":7. Returns the length, at most `room`; a member that does not fit is
 * left out. Words without = become the member "text". */
unsigned long cn_log_json_members(const char *text, char *out, unsigned long room);

/* Writes `text` with quotes and escapes to `out`, cut to `out_bytes` and always with a NUL. Returns
 * `out`. */
const char *cn_log_quote(const char *text, unsigned long len, char *out, unsigned long out_bytes);
/* Decodes the inside of such a value, up to its closing quote. The result is cut to `out_bytes` and
 * ends with a NUL. `out` may be the same memory as `quoted`. Returns the length. */
unsigned long cn_log_unquote(const char *quoted, char *out, unsigned long out_bytes);

#endif
