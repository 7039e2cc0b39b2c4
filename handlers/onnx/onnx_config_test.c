/* handlers/onnx/onnx_config_test.c - tests reading the settings under `onnx`, without the library.
 */
#include "handlers/onnx/onnx_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "handlers/onnx/onnx_runtime.h"
#include "handlers/onnx/ort_abi.h"

#define TENSORS                                                                                    \
    "maxBatchSize: 8\n"                                                                            \
    "inputs: [{name: x, dataType: FP32, dims: [2]}]\n"                                             \
    "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"

static int
parse(const char *text, struct cn_module_config *config, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    char whole[1024];
    int rc;

    snprintf(whole, sizeof(whole), TENSORS "%s", text);
    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(whole), &doc, err), 0);
    rc = cn_module_config_parse(config, &cn_onnx_kind, doc, 8, err);
    cn_yaml_destroy(doc);
    return rc;
}

static void
settings_are_read(void **state)
{
    const struct cn_onnx_settings *own;
    struct cn_module_config config;
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(parse("onnx: {library: /opt/lib, set: {rate: 16000}, interOpThreads: 2, "
                           "graphOptimization: basic, sessionOptions: {a.b: 1}, "
                           "providers: [{XExecutionProvider: {n: 2}}, CPUExecutionProvider]}\n",
                           &config, &err),
                     0);
    own = cn_onnx_settings(&config);
    assert_string_equal(own->library, "/opt/lib");
    assert_int_equal(own->inter_op_threads, 2);
    assert_int_equal(own->optimization, ORT_OPTIMIZE_BASIC);
    assert_int_equal(own->options.n, 1);
    assert_string_equal(own->options.values[0], "1");
    assert_int_equal(own->n_providers, 2);
    assert_string_equal(own->providers[0].options.keys[0], "n");
    assert_string_equal(config.attributes[0].name, "rate");
    assert_false(cn_onnx_is_plain(&config));
    cn_module_config_fini(&config);
    assert_int_equal(parse("", &config, &err), 0);
    assert_true(cn_onnx_is_plain(&config));
    cn_module_config_fini(&config);
    assert_int_equal(parse("deviceType: gpu\nonnx: {}\n", &config, &err), 0);
    assert_string_equal(cn_onnx_settings(&config)->providers[0].name, "CUDAExecutionProvider");
    cn_module_config_fini(&config);
}

static void
mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"onnx: {method: forward}\n", "onnx: unknown key method"},
        {"onnx: {graphOptimization: most}\n", "expected none, basic, extended or all"},
        {"onnx: {interOpThreads: 0}\n", "onnx.interOpThreads: expected an integer from 1 to 256"},
        {"onnx: {providers: []}\n", "a list of 1 to 8 execution providers"},
        {"onnx: {providers: [3]}\n", "names of providers"},
        {"onnx: {sessionOptions: [a]}\n", "a map of up to 64 names and values"},
        {"onnx: {library: [a]}\n", "onnx.library: expected a path"},
    };
    struct cn_module_config config;
    struct cn_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(wrong[i].text, &config, &err), CN_E_CONFIG);
        if (!strstr(err.message, wrong[i].message))
            fail_msg("%s: %s", wrong[i].text, err.message);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(mistakes_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
