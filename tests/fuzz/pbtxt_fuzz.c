/* cn_fuzz: core config archiver */
/* tests/fuzz/pbtxt_fuzz.c - any bytes as a config.pbtxt. They give a tree with positions, or an
 * error with its position; and the tree is turned into YAML. */
#include <stdint.h>
#include <string.h>

#include "archiver/import/import_yaml.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static void
check(const struct cn_pbtxt *message, unsigned depth)
{
    cn_assert(depth <= CN_PBTXT_DEPTH_MAX);
    for (const struct cn_pbtxt *field = message->first; field; field = field->next) {
        cn_assert(field->name.len > 0 && field->line > 0 && field->column > 0);
        if (field->kind == CN_PBTXT_MESSAGE)
            check(field, depth + 1);
        else
            cn_assert(field->first == NULL && (field->text.len || field->kind == CN_PBTXT_STRING));
    }
}

static void
on_lost(void *ctx, const char *path, unsigned line, const char *note)
{
    (void)ctx;
    cn_assert(path[0] && line > 0 && note[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str bytes = {(const char *)data, size};
    struct cn_pbtxt *document;
    struct cn_error err = {0};
    struct cn_arena arena;
    struct cn_buf yaml;

    cn_arena_init(&arena);
    if (cn_pbtxt_parse("fuzz", bytes, &arena, &document, &err) == 0) {
        check(document, 0);
        cn_buf_init(&yaml, 1u << 20);
        if (cn_import_yaml("fuzz", document, CN_IMPORT_ONNX, ".", &yaml, on_lost, NULL, &err) == 0)
            cn_assert(yaml.len > 0);
        cn_buf_fini(&yaml);
    } else {
        cn_assert(strncmp(err.message, "fuzz:", 5) == 0);
    }
    cn_arena_fini(&arena);
    return 0;
}
