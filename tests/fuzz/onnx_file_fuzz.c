/* cn_fuzz: core archiver */
/* tests/fuzz/onnx_file_fuzz.c - an ONNX file from anywhere. Everything that is read lies within its
 * bytes, and a YAML is suggested for it. */
#include <string.h>

#include "archiver/onnx/onnx_suggest.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static void
check_within(struct cn_str text, const uint8_t *bytes, size_t len)
{
    const char *begin = (const char *)bytes;

    cn_assert(text.len == 0 || (text.ptr >= begin && text.ptr + text.len <= begin + len));
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_onnx_file file;
    struct cn_arena arena;
    struct cn_buf yaml;

    cn_arena_init(&arena);
    cn_buf_init(&yaml, 0);
    if (cn_onnx_file_read("fuzz.onnx", text, &arena, &file, NULL) == 0) {
        for (uint32_t i = 0; i < file.n_inputs; i++)
            check_within(file.inputs[i].name, bytes, len);
        for (uint32_t i = 0; i < file.n_outputs; i++)
            check_within(file.outputs[i].name, bytes, len);
        for (uint32_t i = 0; i < file.n_weights; i++)
            check_within(file.weights[i], bytes, len);
        cn_onnx_suggest(&file, &yaml);
        cn_assert(!yaml.failed && yaml.len > 0);
    }
    cn_buf_fini(&yaml);
    cn_arena_fini(&arena);
    return 0;
}
