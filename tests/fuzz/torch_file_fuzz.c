/* cn_fuzz: core archiver */
/* tests/fuzz/torch_file_fuzz.c - a file of PyTorch from anywhere: as a zip file, and as each of the
 * texts that such a file has inside, where changes would only break the zip's checksums. */
#include "archiver/torch/torch_parse.h"
#include "archiver/torch/torch_suggest.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static void
suggest(const struct cn_torch_file *file)
{
    struct cn_buf yaml;

    cn_assert(file->n_arguments <= CN_TORCH_VALUES_MAX && file->n_results <= CN_TORCH_VALUES_MAX);
    cn_buf_init(&yaml, 0);
    cn_torch_suggest(file, &yaml);
    cn_assert(!yaml.failed && yaml.len > 0);
    cn_buf_fini(&yaml);
}

static struct cn_torch_file
empty(struct cn_arena *arena)
{
    const size_t size = CN_TORCH_VALUES_MAX * sizeof(struct cn_torch_value);

    return (struct cn_torch_file){.arguments = cn_arena_alloc(arena, size),
                                  .results = cn_arena_alloc(arena, size)};
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len}, class_name = {"X", 1};
    struct cn_torch_file file;
    struct cn_arena arena;

    cn_arena_init(&arena);
    if (cn_str_begins(text, CN_STR("PK"))) {
        if (cn_torch_file_read("fuzz.pt", text, &arena, &file, NULL) == 0)
            suggest(&file);
    } else {
        file = empty(&arena);
        if (!cn_torch_script_parse(text, class_name, &arena, &file))
            suggest(&file);
        file = empty(&arena);
        if (!cn_torch_exported_parse(text, &arena, &file))
            suggest(&file);
        file = empty(&arena);
        if (!cn_torch_package_parse(text, &file))
            suggest(&file);
    }
    cn_arena_fini(&arena);
    return 0;
}
