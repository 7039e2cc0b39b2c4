/* grpc/kserve/grpc_settings.c - log and trace settings of the v2 protocol over gRPC. On the call's
 * loop.
 *
 * A request becomes the document that an HTTP client would have sent, so that both have the same
 * checks and words.
 */
#include "grpc/kserve/grpc_settings.h"

#include <v2_inference.pb-c.h>

#include "grpc/error_status.h"
#include "grpc/services.h"
#include "grpc/unary.h"
#include "kserve/infer_answer.h"
#include "kserve/models/kserve_models.h"
#include "kserve/settings.h"

typedef Inference__LogSettingsRequest__SettingValue log_value_t;
typedef Inference__TraceSettingRequest__SettingValue trace_value_t;

/* --- the log */

static void
write_log_value(const log_value_t *value, struct cn_buf *out)
{
    if (!value)
        cn_buf_puts(out, "null");
    else if (value->parameter_choice_case ==
             INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM)
        cn_buf_puts(out, value->bool_param ? "true" : "false");
    else if (value->parameter_choice_case ==
             INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM)
        cn_buf_printf(out, "%u", value->uint32_param);
    else if (value->parameter_choice_case ==
             INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM)
        cn_v2_write_text(cn_str_from(value->string_param), out);
    else
        cn_buf_puts(out, "null");
}

static int
change_log(const Inference__LogSettingsRequest *request, struct cn_v2_log *log,
           struct cn_error *err)
{
    struct cn_buf json;
    int rc;

    cn_buf_init(&json, 0);
    cn_buf_puts(&json, "{");
    for (size_t i = 0; i < request->n_settings; i++) {
        cn_buf_puts(&json, i ? "," : "");
        cn_v2_write_text(cn_str_from(request->settings[i]->key), &json);
        cn_buf_puts(&json, ":");
        write_log_value(request->settings[i]->value, &json);
    }
    cn_buf_puts(&json, "}");
    rc = json.failed ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the settings")
                     : cn_v2_log_parse(cn_buf_str(&json), log, err);
    cn_buf_fini(&json);
    return rc;
}

void
cn_rpc_v2_log_settings(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__LogSettingsRequest *request =
        cn_rpc_take(call, message, &inference__log_settings_request__descriptor);
    struct cn_v2_log log;
    struct cn_error err;
    struct cn_buf json;

    if (!request)
        return;
    cn_v2_log_read(&log);
    if (request->n_settings > 0) {
        if (change_log(request, &log, &err)) {
            cn_rpc_fail(call, err.code, err.message, 0);
            return;
        }
        cn_v2_log_apply(&log);
    }
    cn_buf_init(&json, 0);
    cn_buf_printf(&json,
                  "{\"settings\":{\"log_info\":{\"bool_param\":%s},\"log_warning\":{\"bool_param\":"
                  "%s},\"log_error\":{\"bool_param\":%s},\"log_verbose_level\":{\"uint32_param\":%u"
                  "},\"log_format\":{\"string_param\":\"%s\"},\"log_file\":{\"string_param\":",
                  log.info ? "true" : "false", log.warning ? "true" : "false",
                  log.error ? "true" : "false", log.verbose, log.format);
    cn_v2_write_text(cn_str_from(log.file), &json);
    cn_buf_puts(&json, "}}}");
    cn_rpc_reply_json(call, &inference__log_settings_response__descriptor, &json);
}

/* --- traces */

/* Adds one setting to the change. A setting without values is removed. */
static int
change_trace(struct cn_trace_change *change, const char *name, const trace_value_t *value,
             struct cn_arena *arena, struct cn_error *err)
{
    const int key = cn_trace_key_parse(cn_str_from(name));
    const size_t n = value ? value->n_value : 0;
    struct cn_str *texts = cn_arena_alloc(arena, sizeof(*texts) * (n + 1));

    if (key < 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "invalid trace setting name: '%.256s'", name);
    for (size_t i = 0; i < n; i++)
        texts[i] = cn_str_from(value->value[i]);
    return cn_trace_set(change, (enum cn_trace_key)key, n ? texts : NULL, (uint32_t)n, err);
}

static int
update_trace(struct cn_grpc_call *call, const Inference__TraceSettingRequest *request,
             struct cn_error *err)
{
    struct cn_trace_change change = {.keys = {{.set = false}}};
    int rc = 0;

    for (size_t i = 0; !rc && i < request->n_settings; i++)
        rc = change_trace(&change, request->settings[i]->key, request->settings[i]->value,
                          cn_grpc_call_arena(call), err);
    return rc ? rc : cn_trace_apply(cn_str_from(request->model_name), &change, err);
}

void
cn_rpc_v2_trace_setting(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__TraceSettingRequest *request =
        cn_rpc_take(call, message, &inference__trace_setting_request__descriptor);
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    struct cn_str values[CN_TRACE_N_KEYS];
    struct cn_error err;
    struct cn_buf json;

    if (!request)
        return;
    if ((*request->model_name &&
         !cn_v2_find(host->management, cn_str_from(request->model_name), CN_STR(""), &err)) ||
        (request->n_settings > 0 && update_trace(call, request, &err))) {
        cn_rpc_fail(call, err.code, err.message, 0);
        return;
    }
    cn_trace_read(cn_str_from(request->model_name), cn_grpc_call_arena(call), values);
    cn_buf_init(&json, 0);
    cn_buf_puts(&json, "{\"settings\":{");
    for (unsigned i = 0; i < CN_TRACE_N_KEYS; i++) {
        cn_buf_printf(&json, "%s\"%s\":{\"value\":[", i ? "," : "",
                      cn_trace_key_word((enum cn_trace_key)i));
        cn_v2_write_text(values[i], &json);
        cn_buf_puts(&json, "]}");
    }
    cn_buf_puts(&json, "}}");
    cn_rpc_reply_json(call, &inference__trace_setting_response__descriptor, &json);
}
