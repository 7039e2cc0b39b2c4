/* handlers/modules/module_kind.h - describes how the libraries that run modules differ.
 * Worker's thread.
 *
 * A runtime such as "torch" or "onnx" is a kind together with the functions of module_runtime.h,
 * which are the same for all kinds. The kind's library is called through the table of functions in
 * handlers/torchlib/torch_abi.h.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_KIND_H
#define CN_HANDLERS_MODULES_MODULE_KIND_H

#include "config/yaml/yaml.h"
#include "core/errors/error.h"
#include "proto/tensor.h"

struct cn_module_config;
struct module_runtime;

struct cn_module_kind {
    const char *runtime;     /* the runtime's name, and the key of the YAML that has its settings */
    const char *format;      /* "TorchScript" */
    const char *model;       /* "a TorchScript model" */
    const char *called;      /* what gets the inputs: "a TorchScript method" */
    const char *method;      /* the method that runs if the YAML names none: "forward" */
    const char *library;     /* "libtorch" */
    const char *metric;      /* the first part of its metrics' names: "Torch" */
    const char *const *keys; /* names of the settings that it has; the last one is NULL */
    /* The module keeps nothing between runs. So if two runs of a row differ, it draws random
     * numbers. */
    bool keeps_nothing;
    bool (*takes)(enum cn_datatype type);
    /* Reads the settings that no other kind has. May be NULL. */
    int (*read)(struct cn_module_config *config, const struct cn_yaml_doc *doc,
                const struct cn_yaml *settings, struct cn_error *err);
    /* Opens the library and loads the model: sets rt->api and rt->model. */
    int (*load)(struct module_runtime *rt, struct cn_error *err);
};

#endif
