/* cn_fuzz: core config torchserve/settings */
/* tests/fuzz/metrics_file_fuzz.c - any bytes give rules that can be found by their names, or an
 * error with its place. */
#include <string.h>

#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"
#include "torchserve/settings/metrics_file.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_metrics_file file = {0};
    struct cn_error err = {0};
    int rc = cn_metrics_file_parse("metrics.yaml", text, &file, &err);

    if (rc != 0) {
        cn_assert(rc == err.code && strncmp(err.message, "metrics.yaml", 12) == 0);
        return 0;
    }
    cn_assert(file.n > 0 && file.n <= CN_METRICS_FILE_MAX);
    for (uint32_t i = 0; i < file.n; i++) {
        cn_assert(cn_metrics_file_find(&file, cn_str_from(file.rules[i].name)) == &file.rules[i]);
        cn_assert(file.rules[i].unit[0] && file.rules[i].n_dims <= CN_METRIC_DIMS_MAX);
    }
    cn_metrics_file_fini(&file);
    return 0;
}
