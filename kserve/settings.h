/* kserve/settings.h - what clients of the v2 protocol may see and change of the log and of traces.
 *
 * The settings are the process's. Any thread; a lock, which a request only takes while traces are
 * on.
 */
#ifndef CN_KSERVE_SETTINGS_H
#define CN_KSERVE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"

/* --- the log */

struct cn_v2_log {
    bool info, warning, error; /* are such lines written? */
    uint32_t verbose;          /* above 0: those for debugging */
    const char *file;          /* as started; "": none */
    const char *format;        /* "default" or "ISO8601"; lines have ISO 8601 times in any case */
};
/* Before loops run. `file`: borrowed for good; NULL: none. */
void cn_v2_log_setup(const char *file);
void cn_v2_log_read(struct cn_v2_log *out);
/* All of it, but for `file`. */
void cn_v2_log_apply(const struct cn_v2_log *log);
/* Takes a document of changes into *log (as read before) without applying it. CN_E_UNIMPLEMENTED:
 * log_file; CN_E_BAD_REQUEST: an unknown key or value; CN_E_INTERNAL: a wrong type. */
int cn_v2_log_parse(struct cn_str body, struct cn_v2_log *log, struct cn_error *err);
/* "default" or "ISO8601" for that word; NULL, with the error, for others. */
const char *cn_v2_log_format(struct cn_str word, struct cn_error *err);
void cn_v2_log_write(const struct cn_v2_log *log, struct cn_buf *out);

/* --- traces: a line in the server's log for each request that is picked */

enum cn_trace_key {
    CN_TRACE_LEVEL,
    CN_TRACE_RATE,
    CN_TRACE_COUNT,
    CN_TRACE_LOG_FREQUENCY,
    CN_TRACE_FILE,
    CN_TRACE_MODE,
    CN_TRACE_N_KEYS
};
/* "trace_level" ... */
const char *cn_trace_key_word(enum cn_trace_key key);
/* -1: there is none of that name. */
int cn_trace_key_parse(struct cn_str word);

/* Changes to one scope, checked by cn_trace_set one by one and then applied as a whole. Zeroed:
 * none. */
struct cn_trace_change {
    struct {
        bool set, clear;
        int64_t value; /* level: 1 with timestamps; rate, count */
    } keys[CN_TRACE_N_KEYS];
};
/* `values` NULL: clear. CN_E_BAD_REQUEST, CN_E_UNIMPLEMENTED (trace_file). */
int cn_trace_set(struct cn_trace_change *change, enum cn_trace_key key, const struct cn_str *values,
                 uint32_t n, struct cn_error *err);
/* `model` empty: for all that say nothing themselves. CN_E_UNAVAILABLE: too many models have
 * settings. */
int cn_trace_apply(struct cn_str model, const struct cn_trace_change *change, struct cn_error *err);
/* What is in force, as text: values[key], in the arena. */
void cn_trace_read(struct cn_str model, struct cn_arena *arena,
                   struct cn_str values[CN_TRACE_N_KEYS]);

int cn_trace_parse(struct cn_str body, struct cn_trace_change *out, struct cn_error *err);
void cn_trace_write(const struct cn_str values[CN_TRACE_N_KEYS], struct cn_buf *out);

/* A request comes: is it one to be traced? */
bool cn_trace_pick(struct cn_str model);

#endif
