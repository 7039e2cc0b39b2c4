/* kserve/log_settings.c - the v2 protocol's settings for the log. Any thread.
 *
 * The log itself knows only which levels are written. The protocol has more: a verbosity, of which
 * only 0 and "above 0" differ here, and a format, which changes nothing, since lines always have
 * ISO 8601 times. Both are kept, so that a client reads back what it has set.
 */
#include <pthread.h>

#include "core/log/log.h"
#include "kserve/infer_answer.h"
#include "kserve/json/json_words.h"
#include "kserve/settings.h"

static struct {
    pthread_mutex_t lock;
    const char *file, *format;
    uint32_t verbose;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = "", .format = "ISO8601"};

void
cn_v2_log_setup(const char *file)
{
    state.file = file ? file : "";
}

void
cn_v2_log_read(struct cn_v2_log *out)
{
    bool debug = cn_log_enabled(CN_LOG_DEBUG);

    pthread_mutex_lock(&state.lock);
    *out = (struct cn_v2_log){.info = cn_log_enabled(CN_LOG_INFO),
                              .warning = cn_log_enabled(CN_LOG_WARN),
                              .error = cn_log_enabled(CN_LOG_ERROR),
                              .verbose = !debug          ? 0
                                         : state.verbose ? state.verbose
                                                         : 1,
                              .file = state.file,
                              .format = state.format};
    pthread_mutex_unlock(&state.lock);
}

void
cn_v2_log_apply(const struct cn_v2_log *log)
{
    pthread_mutex_lock(&state.lock);
    state.verbose = log->verbose;
    state.format = log->format;
    cn_log_enable(CN_LOG_ERROR, log->error);
    cn_log_enable(CN_LOG_WARN, log->warning);
    cn_log_enable(CN_LOG_INFO, log->info);
    cn_log_enable(CN_LOG_DEBUG, log->verbose > 0);
    pthread_mutex_unlock(&state.lock);
}

/* The error of the protocol for a value of a wrong type. */
static int
wrong_type(const char *key, const char *got, const char *wanted, struct cn_error *err)
{
    return cn_fail(err, CN_E_INTERNAL, "Unable to parse '%s': attempt to access JSON non-%s as %s",
                   key, got, wanted);
}

const char *
cn_v2_log_format(struct cn_str word, struct cn_error *err)
{
    if (cn_str_eq(word, CN_STR("default")))
        return "default";
    if (cn_str_eq(word, CN_STR("ISO8601")))
        return "ISO8601";
    cn_fail(err, CN_E_BAD_REQUEST, "log_format is '%.*s'; it must be 'default' or 'ISO8601'",
            (int)(word.len < 100 ? word.len : 100), word.ptr);
    return NULL;
}

/* Reads one setting of the document. */
static int
take(const char *key, const json_t *value, struct cn_v2_log *log, struct cn_error *err)
{
    struct cn_str name = cn_str_from(key);
    bool *flag = cn_str_eq(name, CN_STR("log_info"))      ? &log->info
                 : cn_str_eq(name, CN_STR("log_warning")) ? &log->warning
                 : cn_str_eq(name, CN_STR("log_error"))   ? &log->error
                                                          : NULL;
    const char *format;
    uint64_t number;

    if (flag) {
        if (!json_is_boolean(value))
            return wrong_type(key, "boolean", "boolean", err);
        *flag = json_is_true(value);
        return 0;
    }
    if (cn_str_eq(name, CN_STR("log_verbose_level"))) {
        if (!cn_v2_json_uint(value, &number) || number > UINT32_MAX)
            return wrong_type(key, "unsigned-integer", "unsigned-integer", err);
        log->verbose = (uint32_t)number;
        return 0;
    }
    if (cn_str_eq(name, CN_STR("log_format"))) {
        if (!cn_v2_json_is_string(value))
            return wrong_type(key, "string", "string", err);
        format = cn_v2_log_format(cn_v2_json_text(value), err);
        log->format = format ? format : log->format;
        return format ? 0 : err->code;
    }
    if (cn_str_eq(name, CN_STR("log_file")))
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "log file location can not be updated through network protocol; start "
                       "the server with --log-dir");
    return cn_fail(
        err, CN_E_BAD_REQUEST,
        "unknown log setting '%.100s'; the settings are log_info, log_warning, log_error, "
        "log_verbose_level and log_format",
        key);
}

int
cn_v2_log_parse(struct cn_str body, struct cn_v2_log *log, struct cn_error *err)
{
    json_t *root, *value;
    const char *key;
    int rc = cn_v2_json_load(body, &root, err);

    if (rc)
        return rc;
    if (!json_is_object(root))
        rc = wrong_type("settings", "object", "object", err);
    json_object_foreach(root, key, value)
    {
        if (!rc)
            rc = take(key, value, log, err);
    }
    json_decref(root);
    return rc;
}

void
cn_v2_log_write(const struct cn_v2_log *log, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"log_file\":");
    cn_v2_write_text(cn_str_from(log->file), out);
    cn_buf_printf(out,
                  ",\"log_info\":%s,\"log_warning\":%s,\"log_error\":%s,\"log_verbose_level\":%u,"
                  "\"log_format\":\"%s\"}",
                  log->info ? "true" : "false", log->warning ? "true" : "false",
                  log->error ? "true" : "false", log->verbose, log->format);
}
