/* handlers/onnx/onnx_runtime.c - ONNX as a kind of module. Worker's thread. */
#include "handlers/onnx/onnx_runtime.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/modules/module_runtime.h"
#include "handlers/onnx/onnx_library.h"
#include "handlers/onnx/onnx_model.h"

static bool
takes(enum cn_datatype type)
{
    return type != CN_DATATYPE_BYTES;
}

/* Returns the worker's device. Workers use the devices that the YAML names in turn, or the first
 * device if it names none. */
static uint32_t
choose_device(struct module_runtime *rt)
{
    const struct cn_module_config *config = &rt->config;
    const uint64_t turn = rt->load->worker_index ? rt->load->worker_index - 1 : 0;
    const uint32_t device = config->n_devices ? config->devices[turn % config->n_devices] : 0;

    if (!config->gpu)
        return 0;
    snprintf(rt->device, sizeof(rt->device), "cuda:%" PRIu32, device);
    snprintf(rt->base.device, sizeof(rt->base.device), "%s", rt->device);
    return device;
}

static int
onnx_load(struct module_runtime *rt, struct cn_error *err)
{
    const char *library = cn_onnx_settings(&rt->config)->library;
    const struct ort *ort;
    struct cn_buf path;
    int rc;

    cn_module_progress(rt, "opening onnxruntime", 0, 0);
    rc = cn_onnx_library_open(*library ? library : rt->load->onnxruntime, &ort, err);
    if (rc)
        return rc;
    cn_module_progress(rt, "reading the model", 0, 0);
    rt->api = cn_onnx_api(ort);
    rt->model = cn_alloc(sizeof(*rt->model));
    rt->model->ort = ort;
    rt->model->config = &rt->config;
    rt->model->shown = rt->load->handler;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", rt->load->model_dir, rt->load->handler);
    cn_buf_append(&path, "", 1);
    rc = cn_onnx_session_open(rt->model, path.data, choose_device(rt), err);
    cn_buf_fini(&path);
    return rc ? rc : cn_onnx_session_check(rt->model, err);
}

const struct cn_module_kind cn_onnx_kind = {
    .runtime = "onnx",
    .format = "ONNX with Continuo",
    .model = "an ONNX model",
    .called = "a graph",
    .method = "the graph",
    .library = "onnxruntime",
    .metric = "Onnx",
    .keys = cn_onnx_keys,
    .takes = takes,
    .keeps_nothing = true,
    .read = cn_onnx_config_read,
    .load = onnx_load,
};

static int
onnx_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
          struct cn_error *err)
{
    (void)config_json; /* the YAML itself is read, for line numbers in messages */
    return cn_module_open(&cn_onnx_runtime_ops, &cn_onnx_kind, load, out, err);
}

/* Checks that onnxruntime has no threads, because threads do not survive a fork. */
static int
onnx_check_zygote(const struct cn_load *load, struct cn_error *err)
{
    struct cn_module_config config;
    bool plain;

    if (cn_module_config_read(&config, &cn_onnx_kind, load->model_dir, load->config_file,
                              (uint32_t)load->batch_size, NULL) != 0)
        return 0;
    plain = cn_onnx_is_plain(&config);
    cn_module_config_fini(&config);
    if (!plain)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "the model has several threads (onnx.threads, onnx.interOpThreads) or other "
                       "providers than CPUExecutionProvider");
    return 0;
}

const struct cn_runtime_ops cn_onnx_runtime_ops = {
    .name = "onnx",
    .open = onnx_open,
    .check_zygote = onnx_check_zygote,
    CN_MODULE_OPS,
};
