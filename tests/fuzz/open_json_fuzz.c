/* cn_fuzz: core proto config kserve grpc */
/* tests/fuzz/open_json_fuzz.c - any bytes as a handler's answer by the Open Inference Protocol.
 *
 * Besides memory errors: each output that was read has the bytes that its type and shape ask for,
 * and a refusal says why. */
#include <stdint.h>

#include "core/errors/panic.h"
#include "grpc/kserve/open_json.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_v2_answer answer = {.model = "m", .version = "1.0"};
    struct cn_error err = {0};
    struct cn_arena arena;

    cn_arena_init(&arena);
    if (cn_rpc_open_outputs((struct cn_str){(const char *)data, size}, 1 << 16, &arena, &answer,
                            &err))
        cn_assert(err.code == CN_E_HANDLER_FAILED && err.message[0]);
    for (uint32_t i = 0; i < answer.n_tensors; i++)
        cn_assert(cn_tensor_check(&answer.tensors[i], NULL) == 0);
    cn_arena_fini(&arena);
    return 0;
}
