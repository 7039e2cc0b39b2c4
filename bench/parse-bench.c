/* bench/parse-bench.c - the CPU time that reading one v2 request takes, by the readers of this
 * project and by the libraries that could replace them.
 *
 *   parse-bench [SECONDS]      for each reader; half a second by default
 *
 * A request is made in memory and read again and again by each reader in turn, five times; the best
 * time of each counts. Lines that say "document" or "unpack" only parse: a server would still have
 * to check what came out and copy it to tensors, so they show the least that the library costs.
 * One thread. docs/decisions/0030 and 0031 use the figures. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <v2_inference.pb-c.h>

#include "core/errors/panic.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "core/tuning/tuning.h"
#include "grpc/kserve/infer_read.h"
#include "kserve/request.h"

#define ROUNDS 5
#define LARGE_VALUES 250000u /* 1 MB of FP32 */
#define MAX_BYTES ((size_t)64 << 20)

/* Reads the request once. */
typedef void (*read_fn)(struct cn_str request, struct cn_arena *arena);

static uint64_t
cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- protobuf */

static void
read_by_hand(struct cn_str request, struct cn_arena *arena)
{
    struct cn_rpc_infer_head head;
    struct cn_v2_request out;
    struct cn_error err;

    cn_assert(cn_rpc_infer_scan(request, &head, &err) == 0 &&
              cn_rpc_infer_read(request, &head, "m", MAX_BYTES, arena, &out, &err) == 0);
}

static void *
arena_alloc(void *ctx, size_t bytes)
{
    return cn_arena_try_alloc(ctx, bytes);
}

static void
arena_free(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr;
}

static void
unpack(struct cn_str request, struct cn_arena *arena)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};

    cn_assert(inference__model_infer_request__unpack(&allocator, request.len,
                                                     (const uint8_t *)request.ptr) != NULL);
}

/* Makes a request with one input of `n` values, raw or typed, as tritonclient sends it. */
static struct cn_str
infer_message(uint32_t n, bool raw)
{
    Inference__ModelInferRequest message = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    Inference__InferTensorContents contents = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    Inference__ModelInferRequest__ParametersEntry entry =
        INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__ModelInferRequest__ParametersEntry *entries[] = {&entry};
    Inference__InferParameter parameter = INFERENCE__INFER_PARAMETER__INIT;
    float *values = calloc(n, sizeof(*values));
    ProtobufCBinaryData bytes = {n * sizeof(*values), (uint8_t *)values};
    int64_t shape[] = {n};
    char name[] = "INPUT", type[] = "FP32", model[] = "identity", id[] = "request-17",
         key[] = "sequence_id";
    struct cn_str out;

    input.name = name;
    input.datatype = type;
    input.shape = shape;
    input.n_shape = 1;
    message.model_name = model;
    message.id = id;
    message.inputs = inputs;
    message.n_inputs = 1;
    entry.key = key;
    entry.value = &parameter;
    parameter.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    parameter.int64_param = 4711;
    message.parameters = entries;
    message.n_parameters = 1;
    if (raw) {
        message.raw_input_contents = &bytes;
        message.n_raw_input_contents = 1;
    } else {
        contents.fp32_contents = values;
        contents.n_fp32_contents = n;
        input.contents = &contents;
    }
    out.len = inference__model_infer_request__get_packed_size(&message);
    out.ptr = malloc(out.len);
    inference__model_infer_request__pack(&message, (uint8_t *)out.ptr);
    free(values);
    return out;
}

/* --- JSON */

static void
read_json(struct cn_str request, struct cn_arena *arena)
{
    const struct cn_v2_limits limits = {MAX_BYTES};
    struct cn_v2_request out;
    struct cn_error err;

    cn_assert(cn_v2_read(request, request.len, "m", &limits, arena, &out, &err) == 0);
}

static void
read_json_plainly(struct cn_str request, struct cn_arena *arena)
{
    const uint64_t before = cn_tuning_bits;

    cn_tuning_set(before &
                  ~(UINT64_C(1) << CN_TUNING_JSON_CUTS | UINT64_C(1) << CN_TUNING_JSON_HEADS));
    read_json(request, arena);
    cn_tuning_set(before);
}

static void
jansson_document(struct cn_str request, struct cn_arena *arena)
{
    json_t *root = json_loadb(request.ptr, request.len, JSON_REJECT_DUPLICATES, NULL);

    (void)arena;
    cn_assert(root);
    json_decref(root);
}

static struct cn_str
json_request(uint32_t n)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(
        &buf,
        "{\"id\":\"request-17\",\"parameters\":{\"sequence_id\":4711},\"inputs\":[{\"name\":"
        "\"INPUT\",\"datatype\":\"FP32\",\"shape\":[%u],\"data\":[",
        n);
    for (uint32_t i = 0; i < n; i++)
        cn_buf_printf(&buf, "%s%g", i ? "," : "", (i * 7919 % 20000 - 10000.0) / 64);
    cn_buf_puts(&buf, "]}]}");
    return cn_buf_str(&buf);
}

/* --- */

static double
time_of(read_fn read, struct cn_str request, double seconds)
{
    struct cn_arena arena;
    uint64_t n = 0, begun = cpu_ns(), now = begun;

    cn_arena_init(&arena);
    for (; (double)(now - begun) < seconds * 1e9; now = cpu_ns())
        for (unsigned i = 0; i < 8; i++, n++) {
            read(request, &arena);
            cn_arena_clear(&arena);
        }
    cn_arena_fini(&arena);
    return (double)(now - begun) / 1000 / (double)n;
}

static void
compare(const char *what, struct cn_str request, const char *const *names, const read_fn *readers,
        double seconds)
{
    double best[3] = {0, 0, 0};

    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < 3 && names[i]; i++) {
            const double us = time_of(readers[i], request, seconds / ROUNDS);

            best[i] = round == 0 || us < best[i] ? us : best[i];
        }
    for (unsigned i = 0; i < 3 && names[i]; i++)
        printf("| %s, %zu bytes | %s | %.2f |\n", what, request.len, names[i], best[i]);
    fflush(stdout);
}

int
main(int argc, char **argv)
{
    static const char *const rpc_names[] = {"read by hand", "protobuf-c, unpack", NULL};
    static const char *const json_names[] = {"numbers cut out", "jansson", "jansson, document"};
    static const read_fn rpc[] = {read_by_hand, unpack, NULL};
    static const read_fn json[] = {read_json, read_json_plainly, jansson_document};
    const double seconds = argc > 1 ? atof(argv[1]) : 0.5;

    puts("| request | reader | us of CPU |\n|---|---|---|");
    compare("ModelInferRequest, 16 FP32, raw", infer_message(16, true), rpc_names, rpc, seconds);
    compare("ModelInferRequest, 16 FP32, typed", infer_message(16, false), rpc_names, rpc, seconds);
    compare("ModelInferRequest, 250,000 FP32, raw", infer_message(LARGE_VALUES, true), rpc_names,
            rpc, seconds);
    compare("ModelInferRequest, 250,000 FP32, typed", infer_message(LARGE_VALUES, false), rpc_names,
            rpc, seconds);
    compare("JSON, 16 FP32", json_request(16), json_names, json, seconds);
    compare("JSON, 1,000 FP32", json_request(1000), json_names, json, seconds);
    compare("JSON, 250,000 FP32", json_request(LARGE_VALUES), json_names, json, seconds);
    return 0;
}
