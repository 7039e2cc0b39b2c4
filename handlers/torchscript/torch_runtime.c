/* handlers/torchscript/torch_runtime.c - TorchScript as a kind of module: its settings, its devices
 * and how it is loaded. Worker's thread. */
#include "handlers/torchscript/torch_runtime.h"

#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/modules/module_runtime.h"
#include "handlers/torchlib/torch_library.h"
#include "handlers/torchlib/torch_message.h"

static bool
takes(enum cn_datatype type)
{
    return type != CN_DATATYPE_BYTES && type != CN_DATATYPE_UINT16 && type != CN_DATATYPE_UINT32 &&
           type != CN_DATATYPE_UINT64;
}

static bool
ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text), n = strlen(ending);

    return len >= n && strcmp(text + len - n, ending) == 0;
}

/* Checks that the state of an attribute with a number has one element, whichever its value is. */
static int
check_number(struct module_runtime *rt, const struct cn_module_attribute *attribute,
             struct cn_error *err)
{
    const struct cn_state_spec *spec = &rt->config.io->state.items[attribute->state];
    struct cn_arena arena;
    bool one = true;
    int rc;

    for (uint32_t i = 0; i < spec->rank; i++)
        one = one && spec->dims[i] == 1;
    if (one)
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_LOAD_FAILED,
                 "torch.attributes of %s: the module holds one number in %s, but the state %.*s "
                 "has the shape %s: a number has dims: []",
                 rt->load->handler, attribute->name, CN_STR_ARG(spec->input),
                 cn_shape_text(&arena, spec->dims, spec->rank));
    cn_arena_fini(&arena);
    return rc;
}

/* Finds out whether the module holds a tensor or a number in each attribute that is a state. */
static int
look_at_attributes(struct module_runtime *rt, struct cn_error *err)
{
    struct cn_module_config *config = &rt->config;
    int rc;

    for (uint32_t i = 0; i < config->n_attributes; i++) {
        struct cn_module_attribute *attribute = &config->attributes[i];

        if (attribute->state >= 0 &&
            rt->api->attribute_kind(rt->model, attribute->name, &attribute->kind, rt->error,
                                    CTT_ERROR_BYTES))
            return cn_fail(err, CN_E_LOAD_FAILED, "torch.attributes of %s: %.*s", rt->load->handler,
                           CN_STR_ARG(cn_torch_cause(rt->error, true)));
        if (cn_module_is_number(attribute) && (rc = check_number(rt, attribute, err)) != 0)
            return rc;
    }
    return 0;
}

static int
load_model(struct module_runtime *rt, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    struct ctt_options options = {.device = rt->device,
                                  .submodule = config->submodule,
                                  .method = config->method,
                                  .threads = (int32_t)config->threads,
                                  .fusion = config->fusion};
    struct cn_buf path;
    uint32_t device;
    int rc;

    if (config->gpu && (rc = cn_module_choose_device(rt, &device, err)) != 0)
        return rc;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", rt->load->model_dir, rt->load->handler);
    cn_buf_append(&path, "", 1);
    options.file = path.data;
    rc = rt->api->load(&options, &rt->model, rt->error, CTT_ERROR_BYTES);
    cn_buf_fini(&path);
    if (rc == 0)
        return look_at_attributes(rt, err);
    cn_module_log_error(rt, "load_failed");
    return cn_fail(err, CN_E_LOAD_FAILED, "libtorch %s cannot load %s as %s: %.*s",
                   rt->api->version, rt->load->handler,
                   ends_with(rt->load->handler, ".pt2")
                       ? "a package of AOTInductor"
                       : "TorchScript (torch.jit.script(model).save())",
                   CN_STR_ARG(cn_torch_cause(rt->error, false)));
}

static int
torch_load(struct module_runtime *rt, struct cn_error *err)
{
    int rc;

    cn_module_progress(rt, "opening libtorch", 0, 0);
    if ((rc = cn_torch_library_open(rt->load->torch_library, &rt->api, err)) != 0)
        return rc;
    cn_module_progress(rt, "reading the model", 0, 0);
    return load_model(rt, err);
}

const struct cn_module_kind cn_torch_kind = {
    .runtime = "torch",
    .format = "TorchScript",
    .model = "a TorchScript model",
    .called = "a TorchScript method",
    .method = "forward",
    .library = "libtorch",
    .metric = "Torch",
    .keys = cn_module_torch_keys,
    .takes = takes,
    .load = torch_load,
};

static int
torch_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
           struct cn_error *err)
{
    (void)config_json; /* the YAML itself is read, for line numbers in messages */
    return cn_module_open(&cn_torch_runtime_ops, &cn_torch_kind, load, out, err);
}

/* Checks that no operator uses threads: they would not exist in a forked child, and libtorch would
 * wait for them. */
static int
torch_check_zygote(const struct cn_load *load, struct cn_error *err)
{
    struct cn_module_config config;
    uint32_t threads;
    bool gpu;

    if (cn_module_config_read(&config, &cn_torch_kind, load->model_dir, load->config_file,
                              (uint32_t)load->batch_size, NULL) != 0)
        return 0;
    threads = config.threads;
    gpu = config.gpu;
    cn_module_config_fini(&config);
    if (gpu)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "deviceType is gpu, and CUDA does not survive a fork");
    if (threads > 1)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "torch.threads is %" PRIu32 ", and threads do not survive a fork", threads);
    return 0;
}

/* Sets the seed, in the process that serves. Otherwise workers that were forked from one process,
 * or that replace a dead one, would all draw the same random numbers. */
static int
torch_serve(struct cn_runtime *base, const struct cn_load *load, struct cn_error *err)
{
    struct module_runtime *rt = cn_module_checked(base);
    uint64_t seed = rt->config.seed * 0x9e3779b97f4a7c15u + load->worker_index;

    if (!rt->config.has_seed)
        seed = cn_torch_new_seed();
    rt->api->seed(seed);
    (void)err;
    return 0;
}

const struct cn_runtime_ops cn_torch_runtime_ops = {
    .name = "torch",
    .open = torch_open,
    .check_zygote = torch_check_zygote,
    .serve = torch_serve,
    CN_MODULE_OPS,
};
