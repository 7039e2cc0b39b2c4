/* config/yaml/yaml.h - a YAML document as a tree with positions, by libyaml. Any thread.
 *
 * Strict where it helps: duplicate keys, aliases of lists and maps, foreign tags, a second
 * document, and documents over the limits (4 MiB, 100,000 values, 64 levels) are errors with line
 * and column.
 */
#ifndef CN_CONFIG_YAML_YAML_H
#define CN_CONFIG_YAML_YAML_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

enum cn_yaml_kind {
    CN_YAML_NULL,
    CN_YAML_BOOL,
    CN_YAML_INT,
    CN_YAML_FLOAT, /* integers beyond int64 too */
    CN_YAML_STRING,
    CN_YAML_LIST,
    CN_YAML_MAP
};

/* Read only; lives as long as its document. Scalars are resolved by YAML 1.2's core schema
 * (unquoted true/false/null, integers, floats); quoted ones are strings. */
struct cn_yaml {
    enum cn_yaml_kind kind;
    unsigned line, column; /* of the value, from 1 */
    struct cn_str text;    /* scalar as written */
    bool boolean;
    int64_t integer;
    double number;     /* FLOAT, and INT too */
    struct cn_str key; /* in a map: its key */
    unsigned key_line, key_column;
    uint32_t n_items; /* LIST, MAP */
    struct cn_yaml *const *items;
};

struct cn_yaml_doc;

/* `name` stands in messages ("model-config.yaml:3:7: ..."). An empty document is an empty map. */
int cn_yaml_parse(const char *name, struct cn_str bytes, struct cn_yaml_doc **out,
                  struct cn_error *err);
int cn_yaml_parse_file(const char *path, struct cn_yaml_doc **out, struct cn_error *err);
/* With another name than the path in messages. */
int cn_yaml_parse_file_as(const char *path, const char *name, struct cn_yaml_doc **out,
                          struct cn_error *err);
void cn_yaml_destroy(struct cn_yaml_doc *doc);
const struct cn_yaml *cn_yaml_root(const struct cn_yaml_doc *doc);
const char *cn_yaml_name(const struct cn_yaml_doc *doc);
/* NULL when the map has no such key (or it isn't a map). */
const struct cn_yaml *cn_yaml_get(const struct cn_yaml *map, const char *key);
/* An integer, also one in quotes: so the JSON of protocol buffers has those of 64 bits. */
bool cn_yaml_take_integer(const struct cn_yaml *node, int64_t *out);
/* "an integer", "a list" ... */
const char *cn_yaml_kind_word(enum cn_yaml_kind kind);

/* Text from outside for a message: cut, without control characters; returns `out`. */
#define CN_YAML_SHOWN_MAX 52
const char *cn_yaml_shown(struct cn_str text, char out[CN_YAML_SHOWN_MAX]);
/* Fails with CN_E_CONFIG: "NAME:3:7: WHAT: expected EXPECTED, found an integer 5". */
int cn_yaml_refuse(const char *name, const struct cn_yaml *at, const char *what,
                   const char *expected, struct cn_error *err);

#endif
