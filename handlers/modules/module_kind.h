/* handlers/modules/module_kind.h - what differs between the libraries that run modules. Worker's
 * thread.
 *
 * A runtime such as "torch" or "onnx" is a kind and the functions of module_runtime.h, which are
 * the same for all kinds. The kind's library is called through the table of functions in
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
    const char *called;      /* what an input is given to: "a TorchScript method" */
    const char *method;      /* what runs where the YAML does not say: "forward" */
    const char *library;     /* "libtorch" */
    const char *metric;      /* how the names of its metrics begin: "Torch" */
    const char *const *keys; /* the settings that it knows; the last one is NULL */
    /* A module is a function: what differs between two runs of the same row was drawn at random. */
    bool keeps_nothing;
    bool (*takes)(enum cn_datatype type);
    /* Reads the settings that no other kind has. May be NULL. */
    int (*read)(struct cn_module_config *config, const struct cn_yaml_doc *doc,
                const struct cn_yaml *settings, struct cn_error *err);
    /* Opens the library and loads the model: sets rt->api and rt->model. */
    int (*load)(struct module_runtime *rt, struct cn_error *err);
};

#endif
