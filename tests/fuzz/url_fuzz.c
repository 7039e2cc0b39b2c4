/* cn_fuzz: core management */
/* tests/fuzz/url_fuzz.c - any bytes as URLs to register from and as the operator's patterns.
 *
 * Input: a line of patterns, then the URL. Besides memory errors it checks that the name of a
 * download is one plain file in the model store.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "management/models/download.h"
#include "management/models/url_rules.h"
#include "management/repository/model_store.h"
#include "tests/fuzz/fuzz.h"

#define PATTERN_BYTES 60 /* the memory of regcomp grows with the pattern */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = cn_strndup((const char *)data, size), *url = strchr(text, '\n'), *name;
    struct cn_url_rules *rules;

    if (url) {
        *url++ = '\0';
        if (strlen(text) <= PATTERN_BYTES && !strpbrk(text, "{*+") &&
            cn_url_rules_create(text, &rules, NULL) == 0) {
            cn_url_rules_allow(rules, url);
            cn_url_rules_destroy(rules);
        }
        cn_model_store_check_url(url, NULL);
        if (cn_download_is_url(url) && (name = cn_download_file_name(url, NULL))) {
            cn_assert(*name && *name != '.' && !strchr(name, '/'));
            cn_free(name);
        }
    }
    cn_free(text);
    return 0;
}
