/* handlers/c/c_model.c - the functions of include/continuo/handler.h that concern the model and not
 * an item: names, the handler's own data, the log, the configuration, metrics. Worker's thread.
 *
 * They may be called from load(), run(), timers and close(). Strings that they return belong to the
 * runtime and stay valid as long as the model is loaded.
 */
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "handlers/c/c_priv.h"

static struct c_runtime *
runtime_of(struct continuo_model *model)
{
    return cn_cast(struct c_runtime, ((struct c_model *)model)->rt, C_RUNTIME_MAGIC);
}

const char *
cn_c_model_name(struct continuo_model *model)
{
    return runtime_of(model)->name;
}

const char *
cn_c_model_version(struct continuo_model *model)
{
    return runtime_of(model)->version;
}

const char *
cn_c_from_version(struct continuo_model *model)
{
    return runtime_of(model)->base.from_version;
}

const char *
cn_c_model_dir(struct continuo_model *model)
{
    return runtime_of(model)->dir;
}

unsigned
cn_c_worker(struct continuo_model *model)
{
    return runtime_of(model)->worker_index;
}

void
cn_c_set_model_data(struct continuo_model *model, void *data)
{
    runtime_of(model)->data = data;
}

void *
cn_c_model_data(struct continuo_model *model)
{
    return runtime_of(model)->data;
}

const char *
cn_c_format(char *out, size_t bytes, const char *fmt, va_list args)
{
    if (vsnprintf(out, bytes, fmt, args) < 0)
        out[0] = '\0';
    return out;
}

void
cn_c_load_error(struct continuo_model *model, const char *fmt, va_list args)
{
    struct c_runtime *rt = runtime_of(model);
    char text[800];

    cn_buf_reset(&rt->load_error);
    cn_buf_puts(&rt->load_error, cn_c_format(text, sizeof(text), fmt, args));
}

void
cn_c_log(struct continuo_model *model, enum continuo_log_level level, const char *fmt, va_list args)
{
    struct c_runtime *rt = runtime_of(model);
    char text[1024], quoted[2048];

    if ((int)level < 0 || level > CONTINUO_LOG_DEBUG || !cn_log_enabled((enum cn_log_level)level))
        return;
    cn_c_format(text, sizeof(text), fmt, args);
    cn_log((enum cn_log_level)level, "event=handler_log model=%s version=%s text=%s", rt->name,
           rt->version, cn_log_quote(text, strlen(text), quoted, sizeof(quoted)));
}

json_t *
cn_c_json_at(json_t *root, const char *path)
{
    char key[128];

    while (root && *path) {
        size_t len = strcspn(path, ".");

        if (len >= sizeof(key))
            return NULL;
        memcpy(key, path, len);
        key[len] = '\0';
        root = json_object_get(root, key);
        path += len + (path[len] == '.');
    }
    return root;
}

const char *
cn_c_config_string(struct continuo_model *model, const char *path, const char *fallback)
{
    json_t *value = cn_c_json_at(runtime_of(model)->config, path);

    return json_is_string(value) ? json_string_value(value) : fallback;
}

int64_t
cn_c_config_int(struct continuo_model *model, const char *path, int64_t fallback)
{
    json_t *value = cn_c_json_at(runtime_of(model)->config, path);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

double
cn_c_config_double(struct continuo_model *model, const char *path, double fallback)
{
    json_t *value = cn_c_json_at(runtime_of(model)->config, path);

    return json_is_number(value) ? json_number_value(value) : fallback;
}

int
cn_c_config_bool(struct continuo_model *model, const char *path, int fallback)
{
    json_t *value = cn_c_json_at(runtime_of(model)->config, path);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

/* --- metrics --- */

static int
refuse_metric(struct c_runtime *rt, const struct cn_error *err)
{
    cn_samples_log(&rt->base.samples, err);
    return -1;
}

int
cn_c_metric(struct continuo_model *model, enum continuo_metric_type type, const char *name,
            const char *unit, double value, const struct continuo_dimension *dimensions, size_t n)
{
    struct c_runtime *rt = runtime_of(model);
    struct cn_header dims[CN_SAMPLE_DIMS_MAX];
    struct cn_sample sample = {.type = (enum cn_sample_type)type,
                               .name = cn_str_from(name),
                               .unit = cn_str_from(unit),
                               .value = value,
                               .n_dims = (uint32_t)n,
                               .dims = dims};
    struct cn_error err;

    if ((unsigned)type > CN_SAMPLE_HISTOGRAM) {
        cn_fail(&err, CN_E_HANDLER_FAILED, "unknown metric type %d; it must be from 0 to 2",
                (int)type);
        return refuse_metric(rt, &err);
    }
    if (n > CN_SAMPLE_DIMS_MAX) {
        cn_fail(&err, CN_E_HANDLER_FAILED, "a metric has at most %d dimensions, not %zu",
                CN_SAMPLE_DIMS_MAX, n);
        return refuse_metric(rt, &err);
    }
    for (size_t i = 0; i < n; i++)
        dims[i] =
            (struct cn_header){cn_str_from(dimensions[i].name), cn_str_from(dimensions[i].value)};
    return cn_samples_add(&rt->base.samples, &sample, &err) ? refuse_metric(rt, &err) : 0;
}
