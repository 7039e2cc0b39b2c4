/* handlers/torchscript/test_torch.h - opens models of the stand-in for libtorch in the tests of the
 * TorchScript runtime. Only tests include it. */
#ifndef CN_HANDLERS_TORCHSCRIPT_TEST_TORCH_H
#define CN_HANDLERS_TORCHSCRIPT_TEST_TORCH_H

#include "handlers/torchscript/torch_runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/modules/test_support.h"

#define SUM_YAML                                                                                   \
    "maxBatchSize: 8\n"                                                                            \
    "inputs: [{name: x, dataType: FP32, dims: [2]}]\n"                                             \
    "outputs: [{name: y, dataType: FP32, dims: [2]}, {name: rows, dataType: INT64, dims: [1]}]\n"  \
    "state: [{name: h, dataType: FP32, dims: [2], batchAxis: 1}]\n"                                \
    "torch: {results: [y, h, rows], buckets: [4]}\n"

static char dir[TEST_DIR_MAX], library[4096];
static struct cn_load load;

static inline int
setup(void **state)
{
    (void)state;
    test_program_path("torchscript/fake_library.so", library, sizeof(library));
    cn_log_set_level(CN_LOG_ERROR);
    test_dir_make(dir);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "model.pt",
                            .config_file = "m.yaml",
                            .runtime = "torch",
                            .torch_library = library,
                            .store_dir = "",
                            .batch_size = ITEMS_MAX,
                            .stateful = 1,
                            .state_max_bytes = 100000};
    return 0;
}

static inline int
teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

static inline int
open_model(const char *kind, const char *yaml, struct cn_runtime **rt, struct cn_error *err)
{
    test_dir_write(dir, "model.pt", kind);
    test_dir_write(dir, "m.yaml", yaml);
    return cn_torch_runtime_ops.open(&load, cn_str_from("{}"), rt, err);
}

static inline struct cn_runtime *
must_open(const char *kind, const char *yaml)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    if (open_model(kind, yaml, &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

static inline void
refused(const char *kind, const char *yaml, const char *words)
{
    struct cn_runtime *rt;
    struct cn_error err = {0};

    assert_true(open_model(kind, yaml, &rt, &err) < 0);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.message);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
