/* cn_fuzz: core config handlers/torchscript handlers/onnx */
/* tests/fuzz/module_config_fuzz.c - the YAML of a TorchScript model, and of an ONNX model. Whatever
 * it says, accepted settings fit the declarations. */
#include <string.h>

#include "core/errors/panic.h"
#include "handlers/modules/module_config.h"
#include "handlers/onnx/onnx_runtime.h"
#include "handlers/torchscript/torch_runtime.h"
#include "tests/fuzz/fuzz.h"

static void
check(const struct cn_module_config *config)
{
    const struct cn_model_io *io = config->io;

    cn_assert(config->n_buckets >= 1 && config->n_buckets <= CN_MODULE_BUCKETS_MAX);
    for (uint32_t i = 0; i < config->n_buckets; i++)
        cn_assert(config->buckets[i] > (i ? config->buckets[i - 1] : 0));
    for (uint32_t i = 0; i < config->n_arguments; i++)
        cn_assert(config->arguments[i].input < (int32_t)io->n_inputs &&
                  config->arguments[i].state < (int32_t)io->state.n);
    for (uint32_t i = 0; i < config->n_results; i++)
        cn_assert(config->results[i].output < (int32_t)io->n_outputs &&
                  config->results[i].state < (int32_t)io->state.n);
    for (uint32_t i = 0; i < config->n_attributes; i++)
        cn_assert(config->attributes[i].state < (int32_t)io->state.n);
}

static void
parse(const struct cn_module_kind *kind, const struct cn_yaml_doc *doc)
{
    struct cn_module_config config;
    struct cn_error err = {0};

    if (cn_module_config_parse(&config, kind, doc, 24, &err) == 0) {
        check(&config);
        cn_module_config_fini(&config);
    } else {
        cn_assert(strncmp(err.message, "fuzz.yaml:", 10) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_yaml_doc *doc = NULL;

    if (cn_yaml_parse("fuzz.yaml", text, &doc, NULL) != 0)
        return 0;
    parse(&cn_torch_kind, doc);
    parse(&cn_onnx_kind, doc);
    cn_yaml_destroy(doc);
    return 0;
}
