/* cn_fuzz: core config */
/* tests/fuzz/model_config_fuzz.c - a model's settings. Whatever the YAML says, each accepted value
 * is within the range of the table, and each warning is a single line. */
#include <string.h>

#include "config/model/batching.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static void
on_warning(void *ctx, const char *line)
{
    (void)ctx;
    cn_assert(strchr(line, '\n') == NULL && strlen(line) < 640);
}

/* `min` may be 0, and no unsigned value is below it. A default below it means "none". */
static void
in_range(uint64_t value, uint64_t none, uint64_t min, uint64_t max)
{
    cn_assert(value == none || (value >= min && value <= max));
}

/* Checks tensors and the settings for batches of them. */
static void
parse_tensors(const struct cn_yaml_doc *doc, struct cn_model_config *config)
{
    struct cn_model_io *io = NULL;
    struct cn_error err = {0};

    if (cn_model_io_parse(doc, &io, &err) == 0 && cn_batching_parse(doc, "m", io, &err) == 0)
        cn_batching_apply(doc, io, config);
    else
        cn_assert(strncmp(err.message, "fuzz.yaml:", 10) == 0);
    cn_model_io_unref(io);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_model_config config;
    struct cn_state_store_url url;
    struct cn_yaml_doc *doc = NULL;
    struct cn_error err = {0};

    if (cn_yaml_parse("fuzz.yaml", text, &doc, NULL) != 0)
        return 0;
    cn_model_config_init(&config);
    if (cn_model_config_apply(&config, doc, on_warning, NULL, &err) == 0)
        cn_model_config_check(&config, NULL);
    else
        cn_assert(strncmp(err.message, "fuzz.yaml:", 10) == 0);
    parse_tensors(doc, &config);
#define VALUE_UINT(x) ((uint64_t)(x))
#define VALUE_BOOL VALUE_UINT
#define VALUE_SWITCH VALUE_UINT
#define VALUE_DURABILITY VALUE_UINT
#define VALUE_SWAP VALUE_UINT
#define VALUE_EXPIRED VALUE_UINT
#define VALUE_PARALLEL VALUE_UINT
#define VALUE_WORD VALUE_UINT
#define VALUE_REPLICAS(x) ((x) == CN_REPLICAS_ALL ? 0 : (uint64_t)(x))
#define VALUE_STORE(x) ((uint64_t)(cn_state_store_url_parse(cn_str_from((x).url), &url, NULL) != 0))
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    in_range(VALUE_##kind(config.field), (uint64_t)default_, min, max);
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    cn_yaml_destroy(doc);
    return 0;
}
