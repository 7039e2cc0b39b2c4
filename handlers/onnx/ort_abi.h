/* handlers/onnx/ort_abi.h - declares the functions of onnxruntime's C interface that we call.
 *
 * The pip package onnxruntime has the library, libonnxruntime.so, but no header, and no package
 * index has one. The library exports OrtGetApiBase(), which gives a table of functions for each
 * version of the interface. Only what we use is declared here. The library's types are pointers to
 * structs whose members only the library knows; they have names of our own. A function that returns
 * a status returns NULL on success. What it returns through `out` belongs to the caller, who frees
 * it with a Release function.
 *
 * This fits onnxruntime 1.12 and all later releases of version 1.
 */
#ifndef CN_HANDLERS_ONNX_ORT_ABI_H
#define CN_HANDLERS_ONNX_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The first version of the table that has all functions of ort_functions.def: that of onnxruntime
 * 1.12. */
#define ORT_TABLE_VERSION 12
#define ORT_MAJOR 1
#define ORT_MINOR_MIN 12

struct ort_status;
struct ort_env;
struct ort_options;
struct ort_session;
struct ort_type;
struct ort_shape; /* type and dimensions of a tensor */
struct ort_memory;
struct ort_allocator;
struct ort_value;
struct ort_binding; /* the inputs and outputs of runs */
struct ort_cuda;

/* Values of enums in the functions' arguments. */
enum { ORT_LOG_WARNING = 2, ORT_LOG_ERROR = 3 };
enum { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 };
enum {
    ORT_OPTIMIZE_NONE = 0,
    ORT_OPTIMIZE_BASIC = 1,
    ORT_OPTIMIZE_EXTENDED = 2,
    ORT_OPTIMIZE_ALL = 99
};
enum { ORT_ARENA_ALLOCATOR = 1, ORT_MEMORY_DEFAULT = 0 };

typedef void (*ort_log_fn)(void *ctx, int level, const char *category, const char *name,
                           const char *place, const char *message);

struct ort {
    const char *version; /* "1.32.0" */
#define ORT_FUNCTION(name, position, result, arguments) result(*name) arguments;
#include "handlers/onnx/ort_functions.def"
#undef ORT_FUNCTION
};

/* OrtGetApiBase() returns a pointer to this. */
struct ort_base {
    const void *const *(*table)(uint32_t version); /* NULL: the library does not have it */
    const char *(*version)(void);
};

#endif
