/* handlers/onnx/onnx_config.h - the settings under `onnx` in a model's YAML that other modules do
 * not have (handlers/modules/module_config.h has the rest). Worker's thread.
 *
 *   onnx:
 *     library: /opt/onnxruntime/lib/libonnxruntime.so # or a folder; default: python3's package
 *     providers: [CUDAExecutionProvider, CPUExecutionProvider] # default: CPUExecutionProvider
 *     providers: [{XNNPACKExecutionProvider: {intra_op_num_threads: 2}}] # with options
 *     set: {sr: 16000}             # numbers for graph inputs that clients do not send
 *     threads: 1                   # that one operator may use
 *     interOpThreads: 1            # operators at a time
 *     graphOptimization: all       # none, basic, extended or all
 *     sessionOptions: {session.intra_op.allow_spinning: 0} # onnxruntime's own words
 */
#ifndef CN_HANDLERS_ONNX_ONNX_CONFIG_H
#define CN_HANDLERS_ONNX_ONNX_CONFIG_H

#include <stdint.h>

#include "handlers/modules/module_config.h"

#define CN_ONNX_PROVIDERS_MAX 8
#define CN_ONNX_ENTRIES_MAX 64

/* Names and values that onnxruntime gets unchanged. */
struct cn_onnx_entries {
    uint32_t n;
    const char **keys, **values;
};

struct cn_onnx_provider {
    const char *name;
    struct cn_onnx_entries options;
};

struct cn_onnx_settings {
    const char *library; /* "": the YAML names none */
    uint32_t n_providers;
    struct cn_onnx_provider providers[CN_ONNX_PROVIDERS_MAX];
    struct cn_onnx_entries options;
    uint32_t inter_op_threads;
    int optimization; /* ORT_OPTIMIZE_... */
};

static inline const struct cn_onnx_settings *
cn_onnx_settings(const struct cn_module_config *config)
{
    return config->own;
}

/* Reads these settings; it is the kind's read(). */
int cn_onnx_config_read(struct cn_module_config *config, const struct cn_yaml_doc *doc,
                        const struct cn_yaml *settings, struct cn_error *err);

/* Returns true if the model runs only on the CPU and only in the worker's thread. Then the process
 * can be forked. */
bool cn_onnx_is_plain(const struct cn_module_config *config);

#endif
