/* handlers/torchlib/torch_abi.h - what crosses between the worker and libcontinuo_torch.so.
 *
 * The library is the project's only C++; the worker opens it when a model wants it, so that nothing
 * else ever needs libtorch. It exports one symbol, continuo_torch(). Only these C structures cross:
 * nobody frees what the other side has allocated, and no function throws. One thread.
 *
 * Functions that return int give 0, or -1 with a text in `error`, cut at its front where it does
 * not fit: TorchScript's messages name their cause in the last line.
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

/* Contiguous, row-major. datatype: the v2 protocol's number (proto/datatypes.def); 0 in a result:
 * the method gave None, and there is no tensor. */
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
    const char *file;      /* TorchScript; a package of AOTInductor where it ends in .pt2 */
    const char *device;    /* "cpu", "cuda:0" */
    const char *submodule; /* "a.b"; "": the module itself */
    const char *method;
    int32_t threads; /* that one operator may use */
    int32_t fusion;  /* 1: TorchScript compiles chains of operators, which makes first calls slow */
};

struct ctt_model;

/* The table only grows at its end: `size` says how far it goes. */
struct ctt_api {
    uint32_t abi, size;
    const char *version;  /* of the libtorch that is loaded: "2.13.0" */
    const char *compiled; /* of the libtorch that this library was compiled against */

    int (*load)(const struct ctt_options *options, struct ctt_model **out, char *error, size_t n);
    void (*unload)(struct ctt_model *model); /* NULL is allowed */
    /* The method as TorchScript writes it: "forward(Tensor x, Tensor h) -> (Tensor, Tensor)".
     * Borrowed from the model. */
    const char *(*schema)(struct ctt_model *model);
    /* What a module keeps between calls. Numbers become what the attribute holds. */
    int (*set_attribute)(struct ctt_model *model, const char *name, const struct ctt_value *value,
                         char *error, size_t n);
    /* The tensor stays as it is until the next run() or get_attribute() of the same name. A number
     * comes as a tensor of rank 0. */
    int (*get_attribute)(struct ctt_model *model, const char *name, struct ctt_tensor *out,
                         char *error, size_t n);
    /* Where argument `i` of the next run() may be written, so that it need not be copied there:
     * sets `data` of a tensor whose type and dimensions are set. Stays until that run(). */
    int (*room)(struct ctt_model *model, uint32_t i, struct ctt_tensor *tensor, char *error,
                size_t n);
    /* Arguments in the order of the method's; where it takes a tuple of k tensors, k arguments are
     * put into one. Results come flat, tuples and lists taken apart, and stay until the next run().
     * Nothing keeps pointers to arguments. `method_ns`, where it is not NULL: what the method alone
     * took, in CPU time of this thread; in real time on a GPU and with several threads. */
    int (*run)(struct ctt_model *model, const struct ctt_value *arguments, uint32_t n_arguments,
               struct ctt_tensor *results, uint32_t max_results, uint32_t *n_results,
               uint64_t *method_ns, char *error, size_t n);
    /* Another method of the same module, as a model of its own: with its own results, and the same
     * weights and attributes, which live as long as one of the two. */
    int (*method)(struct ctt_model *model, const char *name, struct ctt_model **out, char *error,
                  size_t n);
    /* Where libtorch's random numbers of this process begin, on all devices. */
    void (*seed)(uint64_t seed);
    /* What the attribute holds now. */
    int (*attribute_kind)(struct ctt_model *model, const char *name, enum ctt_kind *out,
                          char *error, size_t n);
    /* The attributes and buffers that have other values than at the call before, as "a, b.c" in
     * `names`, cut where they do not fit; at the first call none have. Parameters are not looked
     * at, nor what set_attribute() has set, nor what a tensor holds behind its first 16 MiB. */
    int (*changed)(struct ctt_model *model, char *names, size_t names_n, char *error, size_t n);
    /* How many CUDA devices there are; fails, with the reason, where there is none. */
    int (*devices)(uint32_t *count, char *error, size_t n);
};

/* NULL: the library has another ABI. */
typedef const struct ctt_api *(*ctt_get_fn)(uint32_t abi);
#define CTT_SYMBOL "continuo_torch"

#ifdef __cplusplus
}
#endif

#endif
