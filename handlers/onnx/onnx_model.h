/* handlers/onnx/onnx_model.h - an ONNX file as a session of onnxruntime, and what its runs need.
 * Worker's thread.
 *
 * The rows of inputs are gathered in buffers of our own, and onnxruntime writes outputs of a known
 * shape into buffers of our own. So a state is copied once into a run and once out of it. Inputs
 * and outputs are bound to these buffers (IoBinding), and are bound again only if a shape or a
 * buffer has changed.
 */
#ifndef CN_HANDLERS_ONNX_ONNX_MODEL_H
#define CN_HANDLERS_ONNX_ONNX_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/modules/module.h"
#include "handlers/onnx/onnx_config.h"
#include "handlers/onnx/ort_abi.h"

/* An input or output of the graph, as the file declares it. */
struct onnx_value {
    char *name;
    bool tensor;
    enum cn_datatype type; /* 0: a type that we do not have */
    uint32_t rank;
    int64_t dims[CN_TENSOR_RANK_MAX + 1]; /* -1: any */
};

/* A tensor that is bound to a buffer. */
struct onnx_bound {
    const struct onnx_value *graph;
    enum cn_datatype type;
    char *data;
    size_t cap;
    struct ort_value *value; /* onnxruntime's object for `data` with `dims`; NULL: not made yet */
    uint32_t rank;
    int64_t dims[CTT_RANK_MAX];
    bool bound; /* `value` is bound */
};

/* An output, and the shape that a run will give it, if that is known. */
struct onnx_output {
    struct onnx_bound tensor;
    int64_t declared[CTT_RANK_MAX]; /* -1: any */
    uint32_t declared_rank;
    int32_t axis;  /* the axis of the batch; -1: none */
    bool fixed;    /* has no -1, so its shape is known before a run */
    bool trusted;  /* a run has given the declared shape */
    int32_t given; /* its index in the result of GetBoundOutputValues() */
};

/* The library's own model behind the table of handlers/torchlib/torch_abi.h. */
struct ctt_model {
    const struct ort *ort;
    struct ort_session *session;
    struct ort_binding *binding;
    struct ort_memory *memory;
    struct ort_allocator *allocator;
    const struct cn_module_config *config;
    const char *shown;                   /* the file's name in messages */
    struct onnx_value *inputs, *outputs; /* those of the graph */
    size_t n_inputs, n_outputs;
    /* numbers: tensors of `set`, in the order of the attributes */
    struct onnx_bound *arguments, *numbers;
    struct onnx_output *results;
    struct ort_value **given; /* outputs of the last run: n_given, in an array of the allocator */
    size_t n_given;
    char *schema;
    bool copies; /* the model is on another device: inputs are bound for each run */
};

/* onnx_session.c: opens the file at `path` and reads what its graph declares. `device` is the
 * number of the GPU. */
int cn_onnx_session_open(struct ctt_model *model, const char *path, uint32_t device,
                         struct cn_error *err);
/* onnx_check.c: compares the graph with the YAML, and makes model->arguments, numbers and
 * results. */
int cn_onnx_session_check(struct ctt_model *model, struct cn_error *err);
void cn_onnx_model_close(struct ctt_model *model); /* NULL is allowed */
/* These convert between our types and onnxruntime's numbers. 0 means that there is no such type. */
enum cn_datatype cn_onnx_type(int number);
int cn_onnx_number(enum cn_datatype type);
/* Writes the status as a text of one line and frees the status. Returns -1. */
int cn_onnx_failed(const struct ort *ort, struct ort_status *status, char *error, size_t n);

/* onnx_devices.c: counts the CUDA devices. Returns 0, or -1 with the reason in `error` if there is
 * no device. */
int cn_onnx_devices(uint32_t *count, char *error, size_t n);

/* onnx_run.c: releases the outputs of the last run. */
void cn_onnx_forget_given(struct ctt_model *model);
/* onnx_run.c: the table of functions, with the version of the library that is open. */
const struct ctt_api *cn_onnx_api(const struct ort *ort);

#endif
