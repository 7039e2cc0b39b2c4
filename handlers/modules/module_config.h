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
 *     probe: false                # do not try whether rows depend on each other (module_probe.h),
 *     probe: {seed: 1, tolerance: 1e-3, ranges: {tokens: [0, 100]}} # or how to try it
 *     strictBatching: true        # refuse a model whose rows do, instead of running each alone
 *     seed: 42                    # of libtorch's random numbers; default: another one for each
 *                                 # worker
 *     nanPolicy: refuse           # a row fails if its results have NaN or infinity; default: pass
 *   deviceType: gpu               # as TorchServe has them, beside `torch`: cpu or gpu, and
 *   deviceIds: [0, 1]             # the devices that workers share out; default: the first one
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

#define CN_MODULE_VALUES_MAX 256 /* arguments, results, attributes, settings */
#define CN_MODULE_DEVICES_MAX 64

/* What random values of an input lie in. */
struct cn_module_range {
    bool given;
    double low, high;
};

/* One argument or result. */
struct cn_module_slot {
    int32_t input, output, state; /* index into the declarations; -1: not that */
    struct ctt_value number;      /* an argument that is none of them */
};

/* An attribute of the module: of a state, or a number. */
struct cn_module_attribute {
    const char *name;
    int32_t state; /* -1: a number */
    bool batch;    /* the number is the rows of the batch */
    struct ctt_value number;
    enum ctt_kind kind; /* of a state: what the module holds there; of a number: see `number` */
};

/* A state that the module holds as one number for all rows, which can't differ within a run. */
static inline bool
cn_module_is_number(const struct cn_module_attribute *attribute)
{
    return attribute->state >= 0 && (attribute->kind == CTT_INT || attribute->kind == CTT_FLOAT ||
                                     attribute->kind == CTT_BOOL);
}

struct cn_module_config {
    const struct cn_module_kind *kind;
    void *own;              /* what the kind's read() has kept; in the arena */
    struct cn_model_io *io; /* owned */
    const char *submodule, *method;
    uint32_t n_arguments, n_results, n_attributes;
    struct cn_module_slot *arguments, *results;
    struct cn_module_attribute *attributes;
    uint32_t n_buckets, buckets[CN_MODULE_BUCKETS_MAX]; /* rising */
    uint32_t threads, warmup;
    bool deterministic, fusion, gpu;
    uint32_t n_devices, devices[CN_MODULE_DEVICES_MAX]; /* of `gpu`; none: all that there are */
    bool probe, strict_batching, refuse_nan;
    uint64_t probe_seed;
    double tolerance;               /* below 0: what the types' rounding gives */
    struct cn_module_range *ranges; /* by input */
    bool has_seed;
    uint64_t seed;
    struct cn_arena arena; /* holds the above */
};

/* From the model's YAML, or that in `dir`. CN_E_CONFIG with name:line:column; CN_E_LOAD_FAILED
 * where the model declares no tensors. On failure nothing is left. */
int cn_module_config_parse(struct cn_module_config *config, const struct cn_module_kind *kind,
                           const struct cn_yaml_doc *doc, uint32_t batch_size,
                           struct cn_error *err);
int cn_module_config_read(struct cn_module_config *config, const struct cn_module_kind *kind,
                          const char *dir, const char *file, uint32_t batch_size,
                          struct cn_error *err);
void cn_module_config_fini(struct cn_module_config *config);

#endif
