/* handlers/modules/module_config.h - what the YAML of a module says of it, in its tensors and
 * under the key of its kind: `torch` here. Each kind takes some of these keys (module_kind.h).
 *
 *  inputs: ...  outputs: ...  state: ...   # config/model/model_io.h, model_state.h
 *   torch:
 *     submodule: _model           # the module whose method runs; default: the module itself
 *     method: forward
 *     arguments: [audio, 16000]   # inputs, states and numbers; default: inputs, then states
 *     results: [prob, _]          # outputs and states, _: not wanted; default: outputs, then
 *                                 # states
 *     attributes: {_state: state} # states that the module keeps itself: set before, read after
 *     set: {_last_batch_size: batch, _last_sr: 16000} # numbers set before each run; batch: rows
 *     buckets: [1, 8, 32]         # batch sizes that are run; default: 1, 2, 4 ... batchSize
 *     deterministic: true         # one bucket: an answer never depends on its neighbours
 *     threads: 1
 *     fusion: false
 *     warmup: 16                  # what -1 in dims is, when the model is tried at load
 *     probe: false                # do not check whether rows depend on each other
 *     probe: {seed: 1, tolerance: 1e-3, ranges: {tokens: [0, 100]}} # or: how to
 *     strictBatching: true        # refuse a model whose rows depend on each other
 *     seed: 42                    # for libtorch's random numbers; default: another in each worker
 *     nanPolicy: refuse           # a row fails if its results have NaN or infinity; default: pass
 *   deviceType: gpu               # as TorchServe has them, beside `torch`: cpu or gpu, and
 *   deviceIds: [0, 1]             # the devices, used by workers in turn; default: all
 *
 * Read once, when a worker loads the model. Worker's thread.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_CONFIG_H
#define CN_HANDLERS_MODULES_MODULE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_io.h"
#include "core/errors/error.h"
#include "handlers/modules/module_kind.h"
#include "handlers/modules/module_plan.h"
#include "handlers/torchlib/torch_abi.h"

#define CN_MODULE_VALUES_MAX 256 /* in arguments, results, attributes and settings, each */
#define CN_MODULE_DEVICES_MAX 64

/* The range of random values for an input. */
struct cn_module_range {
    bool given;
    double low, high;
};

/* One argument or result. */
struct cn_module_binding {
    int32_t input, output, state; /* index into the declarations; -1: none of them */
    struct ctt_value number;      /* the argument's value, if it is not a tensor */
};

/* An attribute of the module that holds a state, or that is set to a number. */
struct cn_module_attribute {
    const char *name;
    int32_t state; /* index of its state; -1: it is set to a number */
    bool batch;    /* set it to the number of rows in the batch */
    struct ctt_value number;
    enum ctt_kind kind; /* what the module holds there if it is a state; else see `number` */
};

/* Returns true for a state that the module holds as one number for all rows. All rows of a run must
 * have the same value. */
static inline bool
cn_module_is_number(const struct cn_module_attribute *attribute)
{
    return attribute->state >= 0 && (attribute->kind == CTT_INT || attribute->kind == CTT_FLOAT ||
                                     attribute->kind == CTT_BOOL);
}

struct cn_module_config {
    const struct cn_module_kind *kind;
    void *own;              /* memory of the kind's read(); in the arena */
    struct cn_model_io *io; /* owned */
    const char *submodule, *method;
    uint32_t n_arguments, n_results, n_attributes;
    struct cn_module_binding *arguments, *results;
    struct cn_module_attribute *attributes;
    uint32_t n_buckets, buckets[CN_MODULE_BUCKETS_MAX]; /* ascending */
    uint32_t threads, warmup;
    bool deterministic, fusion, gpu;
    /* devices of `gpu`; none: all devices of the machine */
    uint32_t n_devices, devices[CN_MODULE_DEVICES_MAX];
    bool probe, strict_batching, refuse_nan;
    uint64_t probe_seed;
    double tolerance;               /* negative: what rounding in these types can cause */
    struct cn_module_range *ranges; /* one for each input */
    bool has_seed;
    uint64_t seed;
    struct cn_arena arena; /* holds everything above */
};

/* The keys that each kind takes in its map; the last one is NULL. */
extern const char *const cn_module_torch_keys[], *const cn_module_onnx_keys[];

/* Reads the settings from the model's YAML, or from the YAML in `dir`. Returns CN_E_CONFIG with a
 * message that begins name:line:column, or CN_E_LOAD_FAILED if the model declares no tensors. On
 * failure nothing has to be freed. */
int cn_module_config_parse(struct cn_module_config *config, const struct cn_module_kind *kind,
                           const struct cn_yaml_doc *doc, uint32_t batch_size,
                           struct cn_error *err);
int cn_module_config_read(struct cn_module_config *config, const struct cn_module_kind *kind,
                          const char *dir, const char *file, uint32_t batch_size,
                          struct cn_error *err);
void cn_module_config_fini(struct cn_module_config *config);

#endif
