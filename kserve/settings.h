/* kserve/settings.h - the log and trace settings that clients of the v2 protocol may read and
 * change.
 *
 * The settings belong to the process. Any thread may use them; a lock protects them, which a
 * request takes only while traces are on.
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
    bool info, warning, error; /* whether such lines are written */
    uint32_t verbose;          /* above 0: lines for debugging are written */
    const char *file;          /* the file given at start; "": none */
    const char *format;        /* "default" or "ISO8601"; lines have ISO 8601 times in any case */
};
/* Sets the name of the log file, before loops run. `file` is borrowed for good; NULL: none. */
void cn_v2_log_setup(const char *file);
void cn_v2_log_read(struct cn_v2_log *out);
/* Applies all settings except `file`. */
void cn_v2_log_apply(const struct cn_v2_log *log);
/* Reads a JSON document of changes into *log, which the caller has read before, without applying
 * it. Returns CN_E_UNIMPLEMENTED for log_file, CN_E_BAD_REQUEST for an unknown key or value, and
 * CN_E_INTERNAL, the protocol's code, for a wrong type. */
int cn_v2_log_parse(struct cn_str body, struct cn_v2_log *log, struct cn_error *err);
/* Returns a static "default" or "ISO8601" for that word, or NULL with the error for any other. */
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
/* The setting's name, for example "trace_level". */
const char *cn_trace_key_word(enum cn_trace_key key);
/* The setting of that name, or -1. */
int cn_trace_key_parse(struct cn_str word);

/* Changes to the settings of one model, or of all. cn_trace_set checks and adds them one by one;
 * cn_trace_apply applies them together. Zeroed: no changes. */
struct cn_trace_change {
    struct {
        bool set, clear;
        int64_t value; /* for the level, 1 stands for TIMESTAMPS */
    } keys[CN_TRACE_N_KEYS];
};
/* Adds one change. `values` NULL clears the setting. Returns CN_E_BAD_REQUEST, or
 * CN_E_UNIMPLEMENTED for trace_file. */
int cn_trace_set(struct cn_trace_change *change, enum cn_trace_key key, const struct cn_str *values,
                 uint32_t n, struct cn_error *err);
/* Applies the changes to one model, or, if `model` is empty, to all models without own settings.
 * Returns CN_E_UNAVAILABLE when too many models have settings. */
int cn_trace_apply(struct cn_str model, const struct cn_trace_change *change, struct cn_error *err);
/* Stores the settings that are in force for a model, as texts in the arena. */
void cn_trace_read(struct cn_str model, struct cn_arena *arena,
                   struct cn_str values[CN_TRACE_N_KEYS]);

int cn_trace_parse(struct cn_str body, struct cn_trace_change *out, struct cn_error *err);
void cn_trace_write(const struct cn_str values[CN_TRACE_N_KEYS], struct cn_buf *out);

/* Is this request of the model one to be traced? Counts it. */
bool cn_trace_pick(struct cn_str model);

#endif
