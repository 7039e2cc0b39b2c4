/* config/yaml/yaml.h - a YAML document as a tree with positions, read by libyaml. Any thread.
 *
 * It is strict where that helps: duplicate keys, aliases of lists and maps, foreign tags, a second
 * document, and a document over the limits (4 MiB, 100,000 values, 64 levels) are errors with line
 * and column. */
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
    CN_YAML_FLOAT, /* also integers that int64 cannot hold */
    CN_YAML_STRING,
    CN_YAML_LIST,
    CN_YAML_MAP
};

/* A value of the tree; read only, valid as long as its document. Scalars are resolved by the core
 * schema of YAML 1.2 (unquoted true, false, null, integers, floats); quoted ones are strings. */
struct cn_yaml {
    enum cn_yaml_kind kind;
    unsigned line, column; /* where the value begins, counted from 1 */
    struct cn_str text;    /* a scalar as it is written */
    bool boolean;
    int64_t integer;
    double number;     /* the value of a FLOAT or an INT */
    struct cn_str key; /* its key, if it is in a map */
    unsigned key_line, key_column;
    uint32_t n_items; /* set for LIST and MAP */
    struct cn_yaml *const *items;
};

struct cn_yaml_doc;

/* Parses a document, which cn_yaml_destroy frees. `name` is used in messages
 * ("model-config.yaml:3:7: ..."). An empty document is an empty map. CN_E_CONFIG with name, line
 * and column; CN_E_OUT_OF_MEMORY. */
int cn_yaml_parse(const char *name, struct cn_str bytes, struct cn_yaml_doc **out,
                  struct cn_error *err);
int cn_yaml_parse_file(const char *path, struct cn_yaml_doc **out, struct cn_error *err);
/* Uses another name than the path in messages. */
int cn_yaml_parse_file_as(const char *path, const char *name, struct cn_yaml_doc **out,
                          struct cn_error *err);
void cn_yaml_destroy(struct cn_yaml_doc *doc);
const struct cn_yaml *cn_yaml_root(const struct cn_yaml_doc *doc);
const char *cn_yaml_name(const struct cn_yaml_doc *doc);
/* The value of a key; NULL if the map has no such key, or is not a map. */
const struct cn_yaml *cn_yaml_get(const struct cn_yaml *map, const char *key);
/* Reads an integer, also one in quotes, since the JSON of protocol buffers quotes integers of 64
 * bits. False: it is something else. */
bool cn_yaml_take_integer(const struct cn_yaml *node, int64_t *out);
/* A kind in words for messages: "an integer", "a list" ... */
const char *cn_yaml_kind_word(enum cn_yaml_kind kind);

/* Makes text from outside fit for a message: cut, and without control characters. Returns `out`. */
#define CN_YAML_SHOWN_MAX 52
const char *cn_yaml_shown(struct cn_str text, char out[CN_YAML_SHOWN_MAX]);
/* Sets and returns CN_E_CONFIG with "NAME:3:7: WHAT: expected EXPECTED, found an integer 5". */
int cn_yaml_refuse(const char *name, const struct cn_yaml *at, const char *what,
                   const char *expected, struct cn_error *err);

#endif
