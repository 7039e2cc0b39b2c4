/* cn_fuzz: core config */
/* tests/fuzz/overlay_fuzz.c - two documents with a line "---" between them. The second one is laid
 * over the first one. If they are valid together, the text that this gives is accepted again. */
#include <string.h>

#include "config/model/batching.h"
#include "config/model/overlay.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

static void
read_again(const struct cn_buf *text)
{
    struct cn_yaml_doc *doc = NULL;
    struct cn_model_config config;
    struct cn_model_io *io = NULL;
    int rc = cn_yaml_parse("both", cn_buf_str(text), &doc, NULL);

    cn_model_config_init(&config);
    cn_assert(rc == 0 && cn_model_config_apply(&config, doc, NULL, NULL, NULL) == 0);
    cn_assert(cn_model_io_parse(doc, &io, NULL) == 0 && cn_batching_parse(doc, "m", io, NULL) == 0);
    cn_model_io_unref(io);
    cn_yaml_destroy(doc);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes, *cut = memmem(bytes, len, "\n---\n", 5);
    struct cn_str parts[2] = {{text, cut ? (size_t)(cut - text) : 0}, {text, len}};
    struct cn_yaml_doc *docs[2] = {NULL, NULL};
    struct cn_model_config base;
    struct cn_error err = {0};
    struct cn_buf out;

    if (cut)
        parts[1] = (struct cn_str){cut + 5, len - (size_t)(cut + 5 - text)};
    cn_model_config_init(&base);
    cn_buf_init(&out, 0);
    if (cn_yaml_parse("below", parts[0], &docs[0], NULL) == 0 &&
        cn_yaml_parse("above", parts[1], &docs[1], NULL) == 0 &&
        cn_overlay_write(docs[0], docs[1], "m", &base, &out, &err) == 0)
        read_again(&out);
    cn_yaml_destroy(docs[0]);
    cn_yaml_destroy(docs[1]);
    cn_buf_fini(&out);
    return 0;
}
