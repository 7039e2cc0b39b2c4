/* config/model/model_page_test.c - tests that the page on a model's YAML leaves nothing out and
 * shows nothing wrong. */
#include "config/model/model_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/model/batching.h"
#include "config/model/model_config.h"
#include "config/model/model_io.h"

#define TENSORS                                                                                    \
    "inputs: [{name: A, dataType: FP32, dims: [1]}]\noutputs: [{name: B, dataType: FP32, dims: "   \
    "[1]}]\n"

static const char *const keys[] = {
#define CN_KEY_SECTION(title, text)
#define CN_KEY(path, unit, example) path,
#define CN_KEY_LIST(path, others, type, default_text, range, help, example)
#include "config/model/model_keys.def"
#undef CN_KEY_SECTION
#undef CN_KEY
#undef CN_KEY_LIST
};

static unsigned
count(const char *path)
{
    unsigned n = 0;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        n += strcmp(keys[i], path) == 0;
    return n;
}

/* A new row of model_options.def needs one in model_keys.def. */
static void
each_option_stands_once(void **state)
{
    size_t options = 0;

    (void)state;
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    if (count(yaml_path) != 1)                                                                     \
        fail_msg("%s stands %u times in model_keys.def", yaml_path, count(yaml_path));             \
    options++;
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    assert_int_equal(options, sizeof(keys) / sizeof(keys[0]));
}

static void
on_warning(void *ctx, const char *line)
{
    (void)ctx;
    fail_msg("%s", line);
}

/* A user copies the example: it must be accepted without a warning. */
static void
try_example(const char *path, const char *example)
{
    struct cn_model_config config;
    struct cn_yaml_doc *doc;
    struct cn_model_io *io;
    struct cn_error err = {0};
    char text[1024];

    snprintf(text, sizeof(text), "%s%s\n", example,
             strncmp(example, "inputs", 6) == 0 ? "\noutputs: [{name: B, dataType: FP32, dims: []}]"
             : strncmp(example, "outputs", 7) == 0
                 ? "\ninputs: [{name: A, dataType: FP32, dims: []}]"
                 : "\n" TENSORS);
    cn_model_config_init(&config);
    if (cn_yaml_parse(path, cn_str_from(text), &doc, &err) != 0)
        fail_msg("%s", err.message);
    if (cn_model_config_apply(&config, doc, on_warning, NULL, &err) != 0 ||
        cn_model_io_parse(doc, &io, &err) != 0 || cn_batching_parse(doc, "m", io, &err) != 0)
        fail_msg("%s", err.message);
    cn_yaml_destroy(doc);
    cn_model_io_unref(io);
}

static void
examples_are_right(void **state)
{
    (void)state;
#define CN_KEY_SECTION(title, text)
#define CN_KEY(path, unit, example) try_example(path, example);
#define CN_KEY_LIST(path, others, type, default_text, range, help, example)                        \
    try_example(path, example);
#include "config/model/model_keys.def"
#undef CN_KEY_SECTION
#undef CN_KEY
#undef CN_KEY_LIST
#define CN_MODULE_KEY(key, type, default_text, range, help, example) try_example(key, example);
#include "config/model/onnx_keys.def"
#include "config/model/torch_keys.def"
#undef CN_MODULE_KEY
}

static void
the_page_is_whole(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    cn_model_config_page(out);
    fclose(out);
    assert_non_null(strstr(text, "| `batchSize` | integer | 1 | 1 to 65536 rows | maximum number "
                                 "of rows in one handler call | `batchSize: 16` |\n"));
    assert_non_null(strstr(text, "| `sequenceBatching` | true or false | false |  |"));
    assert_non_null(strstr(text, "| `state.durability` | word | process |"));
    assert_non_null(strstr(text, "| `torch.fusion` | true or false | false |"));
    assert_non_null(strstr(text, "| `onnx.threads` | integer | 1 | 1 to 256 |"));
    assert_non_null(strstr(text, "| `deviceType` | `cpu` |"));
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_option_stands_once),
        cmocka_unit_test(examples_are_right),
        cmocka_unit_test(the_page_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
