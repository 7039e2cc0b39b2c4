/* cn_fuzz: core config torchserve/settings */
/* tests/fuzz/properties_fuzz.c - properties that were read are printed as properties with the same
 * values. Errors are one line. */
#include <string.h>

#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"
#include "torchserve/settings/properties.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_properties one = {0}, two = {0};
    struct cn_error err = {0};
    struct cn_buf text;

    if (cn_properties_parse("fuzz", (struct cn_str){(const char *)bytes, len}, &one, &err) != 0) {
        cn_assert(err.code == CN_E_CONFIG && strchr(err.message, '\n') == NULL);
        cn_properties_fini(&one);
        return 0;
    }
    cn_buf_init(&text, 0);
    cn_properties_print(&one, &text);
    cn_assert(cn_properties_parse("again", cn_buf_str(&text), &two, NULL) == 0);
    cn_assert(one.n == two.n);
    for (uint32_t i = 0; i < one.n; i++) {
        cn_assert(strcmp(one.items[i].key, two.items[i].key) == 0);
        cn_assert(strcmp(one.items[i].value, two.items[i].value) == 0);
    }
    cn_buf_fini(&text);
    cn_properties_fini(&one);
    cn_properties_fini(&two);
    return 0;
}
