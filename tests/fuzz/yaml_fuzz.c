/* cn_fuzz: core config */
/* tests/fuzz/yaml_fuzz.c - YAML comes with archives. Any bytes give a tree within the limits, or an
 * error with its place. */
#include <string.h>

#include "config/yaml/yaml.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static unsigned
walk(const struct cn_yaml *node, unsigned depth)
{
    unsigned n = 1;

    cn_assert(depth <= 64 && node->line > 0 && node->column > 0);
    cn_assert(node->n_items == 0 || node->kind == CN_YAML_LIST || node->kind == CN_YAML_MAP);
    for (uint32_t i = 0; i < node->n_items; i++) {
        if (node->kind == CN_YAML_MAP)
            cn_assert(node->items[i]->key.ptr != NULL && node->items[i]->key_line > 0);
        n += walk(node->items[i], depth + 1);
    }
    return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_yaml_doc *doc = NULL;
    struct cn_error err = {0};
    int rc = cn_yaml_parse("fuzz.yaml", text, &doc, &err);

    if (rc == 0)
        cn_assert(walk(cn_yaml_root(doc), 0) <= 100001);
    else
        cn_assert(doc == NULL && rc == err.code && strchr(err.message, '\n') == NULL);
    cn_yaml_destroy(doc);
    return 0;
}
