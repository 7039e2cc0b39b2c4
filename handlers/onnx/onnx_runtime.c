/* handlers/onnx/onnx_runtime.c - ONNX as a kind of module. Worker's thread. */
#include "handlers/onnx/onnx_runtime.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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

/* Only CUDA's devices are known; other providers choose theirs by their own options. */
static bool
wants_cuda(const struct module_runtime *rt)
{
    const struct cn_onnx_settings *settings = cn_onnx_settings(&rt->config);

    for (uint32_t i = 0; rt->config.gpu && i < settings->n_providers; i++)
        if (strcmp(settings->providers[i].name, "CUDAExecutionProvider") == 0)
            return true;
    return false;
}

static int
onnx_load(struct module_runtime *rt, struct cn_error *err)
{
    const char *library = cn_onnx_settings(&rt->config)->library;
    const struct ort *ort;
    uint32_t device = 0;
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
    if (wants_cuda(rt) && (rc = cn_module_choose_device(rt, &device, err)) != 0)
        return rc;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", rt->load->model_dir, rt->load->handler);
    cn_buf_append(&path, "", 1);
    rc = cn_onnx_session_open(rt->model, path.data, device, err);
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
    .keys = cn_module_onnx_keys,
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

/* Opens the library that the operator has installed. One that the model's YAML names is opened
 * behind the walls, because whoever packs the archive may name any file. */
static void
onnx_prepare(const struct cn_load *load, void (*add)(void *ctx, const char *path), void *ctx)
{
    struct cn_module_config config;
    const struct ort *ort;
    char folder[PATH_MAX], *slash;
    bool named;

    if (cn_module_config_read(&config, &cn_onnx_kind, load->model_dir, load->config_file,
                              (uint32_t)load->batch_size, NULL) != 0)
        return;
    named = *cn_onnx_settings(&config)->library;
    cn_module_config_fini(&config);
    if (named || cn_onnx_library_open(load->onnxruntime, &ort, NULL) != 0)
        return; /* open() says what is wrong */
    snprintf(folder, sizeof(folder), "%s", cn_onnx_library_file());
    if ((slash = strrchr(folder, '/'))) {
        *slash = '\0';
        add(ctx, folder);
    }
}

const struct cn_runtime_ops cn_onnx_runtime_ops = {
    .name = "onnx",
    .prepare = onnx_prepare,
    .open = onnx_open,
    .check_zygote = onnx_check_zygote,
    CN_MODULE_OPS,
};
