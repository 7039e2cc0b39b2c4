/* torchserve/settings/properties.h - reads Java's properties files, the format of TorchServe's
 * configuration. Main thread.
 *
 * Keys and values keep the order of the file. If a key occurs twice, the last value counts. Bytes
 * above 0x7f are kept as they are. (Java reads such a file as Latin-1; here it is UTF-8.)
 */
#ifndef CN_TORCHSERVE_SETTINGS_PROPERTIES_H
#define CN_TORCHSERVE_SETTINGS_PROPERTIES_H

#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

/* Limits what a hostile file can cost. A snapshot of ten thousand models fits. */
#define CN_PROPERTIES_MAX_BYTES (16u << 20)
#define CN_PROPERTIES_MAX 10000

struct cn_property {
    char *key, *value; /* UTF-8, NUL-terminated, without zero bytes */
    char *where;       /* for messages: "config.properties:3", "--models", "TS_LOAD_MODELS" */
};

struct cn_properties {
    struct cn_property *items;
    uint32_t n;
};

/* Adds the text's pairs to `into`; a pair whose key is already there replaces the old value. `name`
 * is used in error messages. Returns CN_E_CONFIG, and a message with name and line, for a broken \u
 * escape, a zero byte, or too many keys; `into` then keeps the pairs before that place. */
int cn_properties_parse(const char *name, struct cn_str text, struct cn_properties *into,
                        struct cn_error *err);
/* Adds the pairs of a file. CN_E_CONFIG names the file if it cannot be read. */
int cn_properties_read(const char *path, struct cn_properties *into, struct cn_error *err);
/* Replaces the value of a key, or adds the key at the end. The strings are copied. */
int cn_properties_set(struct cn_properties *into, struct cn_str key, struct cn_str value,
                      const char *where, struct cn_error *err);
/* Returns NULL if there is no such key. */
const struct cn_property *cn_properties_find(const struct cn_properties *properties,
                                             const char *key);
/* Writes each pair as a line "key=value", with escapes, so that we and Java read the same pairs
 * again. */
void cn_properties_print(const struct cn_properties *properties, struct cn_buf *out);
/* Writes one such line. */
void cn_property_print(const char *key, const char *value, struct cn_buf *out);
void cn_properties_fini(struct cn_properties *properties);

#endif
