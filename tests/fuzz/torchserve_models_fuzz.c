/* cn_fuzz: core config torchserve/settings */
/* tests/fuzz/torchserve_models_fuzz.c - any bytes as the values of `models` and `model_snapshot` in
 * config.properties. Each accepted number is one of its range or not given. */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "tests/fuzz/fuzz.h"
#include "torchserve/settings/torchserve_models.h"

typedef int parse_fn(const char *where, const char *json, struct cn_model_settings **out,
                     uint32_t *count, struct cn_error *err);

static void
check_number(int64_t number, int64_t least)
{
    cn_assert(number == -1 || (number >= least && number <= INT32_MAX));
}

static void
check(parse_fn *parse, const char *json, int64_t least_workers)
{
    struct cn_model_settings *models = NULL;
    struct cn_error err = {0};
    uint32_t n = 0;

    if (parse("fuzz", json, &models, &n, &err) != 0) {
        cn_assert(err.code == CN_E_CONFIG && err.message[0]);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        cn_assert(models[i].name && models[i].version);
        cn_assert(least_workers > 0 || models[i].mar_name);
        check_number(models[i].min_workers, least_workers);
        check_number(models[i].max_workers, least_workers);
        check_number(models[i].max_batch_delay_ms, least_workers);
        check_number(models[i].batch_size, 1);
        check_number(models[i].response_timeout_s, 1);
        check_number(models[i].startup_timeout_s, 1);
    }
    cn_model_settings_free(models, n);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *json = cn_strndup((const char *)bytes, len);

    check(cn_torchserve_models_parse, json, 1);
    check(cn_torchserve_snapshot_parse, json, 0);
    cn_free(json);
    return 0;
}
