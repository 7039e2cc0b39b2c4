/* handlers/torchlib/torch_abi.h - the interface between the worker and libcontinuo_torch.so. One
 * thread.
 *
 * The library is the project's only C++. The worker opens it when a model needs it, so nothing else
 * needs libtorch. The library exports one symbol, continuo_torch(). Only the C structures below
 * cross the interface. Neither side frees what the other has allocated, and no function throws.
 *
 * Functions that return int return 0, or -1 with a text in `error`. A text that is too long is cut
 * at its front, because TorchScript's messages name their cause in the last line.
 */
#ifndef CN_HANDLERS_TORCHLIB_TORCH_ABI_H
#define CN_HANDLERS_TORCHLIB_TORCH_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CTT_ABI 3
#define CTT_RANK_MAX 16
#define CTT_ERROR_BYTES 8192 /* a good size for `error` */

/* A contiguous tensor in row-major order. `datatype` is the v2 protocol's number
 * (proto/datatypes.def). In a result 0 means that the method returned None, and there is no tensor.
 */
struct ctt_tensor {
    void *data; /* aligned for its type */
    int64_t dims[CTT_RANK_MAX];
    int32_t rank, datatype;
};

enum ctt_kind { CTT_TENSOR, CTT_INT, CTT_FLOAT, CTT_BOOL, CTT_NONE };

struct ctt_value {
    enum ctt_kind kind;
    struct ctt_tensor tensor;
    int64_t integer; /* CTT_INT, CTT_BOOL */
    double number;
};

struct ctt_options {
    const char *file;      /* a TorchScript file, or a package of AOTInductor if it ends in .pt2 */
    const char *device;    /* "cpu", "cuda:0" */
    const char *submodule; /* "a.b"; "": the module itself */
    const char *method;
    int32_t threads; /* how many threads one operator may use */
    int32_t fusion;  /* 1: compile chains of operators; the first calls are slow then */
};

struct ctt_model;

/* The table of functions. It only grows at its end, and `size` says how large it is. */
struct ctt_api {
    uint32_t abi, size;
    const char *version;  /* version of the libtorch that is loaded: "2.13.0" */
    const char *compiled; /* version of the libtorch that this library was compiled against */

    int (*load)(const struct ctt_options *options, struct ctt_model **out, char *error, size_t n);
    void (*unload)(struct ctt_model *model); /* NULL is allowed */
    /* Returns the method's signature as TorchScript writes it: "forward(Tensor x, Tensor h) ->
     * (Tensor, Tensor)". Borrowed from the model. */
    const char *(*schema)(struct ctt_model *model);
    /* Sets an attribute, which the module keeps between calls. A number is converted to the type
     * that the attribute has. */
    int (*set_attribute)(struct ctt_model *model, const char *name, const struct ctt_value *value,
                         char *error, size_t n);
    /* Reads an attribute. The tensor stays as it is until the next run(), or the next
     * get_attribute() of the same name. A number is read as a tensor of rank 0. */
    int (*get_attribute)(struct ctt_model *model, const char *name, struct ctt_tensor *out,
                         char *error, size_t n);
    /* Gives memory in which argument `i` of the next run() may be written, so that it need not be
     * copied there. Sets `data` of a tensor whose type and dimensions are set. The memory stays
     * until that run(). */
    int (*room)(struct ctt_model *model, uint32_t i, struct ctt_tensor *tensor, char *error,
                size_t n);
    /* Runs the method. The arguments are in the method's order; if it takes a tuple of k tensors, k
     * arguments in a row fill it. Tuples and lists among the results are taken apart. The results
     * stay until the next run(). No pointer to an argument is kept. If `method_ns` is not NULL, it
     * gets the time of the method alone: CPU time of this thread, or real time on a GPU and with
     * several threads. */
    int (*run)(struct ctt_model *model, const struct ctt_value *arguments, uint32_t n_arguments,
               struct ctt_tensor *results, uint32_t max_results, uint32_t *n_results,
               uint64_t *method_ns, char *error, size_t n);
    /* Opens another method of the same module as a model of its own. It has its own results, and
     * shares weights and attributes, which live as long as one of the two models. */
    int (*method)(struct ctt_model *model, const char *name, struct ctt_model **out, char *error,
                  size_t n);
    /* Sets the seed of libtorch's random numbers in this process, on all devices. */
    void (*seed)(uint64_t seed);
    /* Returns what the attribute holds now. */
    int (*attribute_kind)(struct ctt_model *model, const char *name, enum ctt_kind *out,
                          char *error, size_t n);
    /* Writes the attributes and buffers whose values differ from those at the call before into
     * `names`, as "a, b.c", cut if they do not fit. The first call finds none. It does not look at
     * parameters, at what set_attribute() has set, or at a tensor's bytes beyond the first 16 MiB.
     */
    int (*changed)(struct ctt_model *model, char *names, size_t names_n, char *error, size_t n);
    /* Counts the CUDA devices. Fails with the reason if there is none. */
    int (*devices)(uint32_t *count, char *error, size_t n);
};

/* Returns NULL if the library has another ABI. */
typedef const struct ctt_api *(*ctt_get_fn)(uint32_t abi);
#define CTT_SYMBOL "continuo_torch"

#ifdef __cplusplus
}
#endif

#endif
