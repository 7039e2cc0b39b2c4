/* torchserve/settings/properties.h - Java's properties files, which TorchServe is configured by.
 * Main thread.
 *
 * Keys and values in file order; the last of two equal keys wins. Bytes over 0x7f pass as they are
 * (Java reads Latin-1; ours are UTF-8).
 */
#ifndef CN_TORCHSERVE_SETTINGS_PROPERTIES_H
#define CN_TORCHSERVE_SETTINGS_PROPERTIES_H

#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

/* Bounds a hostile file; a snapshot of ten thousand models fits. */
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

/* Adds the text's pairs to `into`, over those that are there. `name` stands in messages.
 * CN_E_CONFIG with name:line for a broken \u escape, a zero byte, or too many keys; `into` then
 * keeps what came before. */
int cn_properties_parse(const char *name, struct cn_str text, struct cn_properties *into,
                        struct cn_error *err);
/* Adds the pairs of a file. CN_E_CONFIG names the file if it cannot be read. */
int cn_properties_read(const char *path, struct cn_properties *into, struct cn_error *err);
/* Replaces, or adds at the end. Strings are copied. */
int cn_properties_set(struct cn_properties *into, struct cn_str key, struct cn_str value,
                      const char *where, struct cn_error *err);
/* NULL: there is none. */
const struct cn_property *cn_properties_find(const struct cn_properties *properties,
                                             const char *key);
/* One "key=value" line each, escaped so that it reads back the same, by Java too. */
void cn_properties_print(const struct cn_properties *properties, struct cn_buf *out);
/* One such line. */
void cn_property_print(const char *key, const char *value, struct cn_buf *out);
void cn_properties_fini(struct cn_properties *properties);

#endif
