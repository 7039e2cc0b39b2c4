/* worker/config_json.c - writes a YAML tree as JSON. Worker's thread, once. */
#include "worker/config_json.h"

#include <inttypes.h>
#include <math.h>

#include "config/yaml.h"

static void
put_string(struct cn_str text, struct cn_buf *out)
{
    cn_buf_append(out, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        if (c == '"' || c == '\\')
            cn_buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            cn_buf_printf(out, "\\u%04x", c);
        else
            cn_buf_append(out, text.ptr + i, 1);
    }
    cn_buf_append(out, "\"", 1);
}

/* The parser bounds depth and size. */
static void
put_node(const struct cn_yaml *node, struct cn_buf *out)
{
    switch (node->kind) {
    case CN_YAML_NULL:
        cn_buf_puts(out, "null");
        return;
    case CN_YAML_BOOL:
        cn_buf_puts(out, node->boolean ? "true" : "false");
        return;
    case CN_YAML_INT:
        cn_buf_printf(out, "%" PRId64, node->integer);
        return;
    case CN_YAML_FLOAT:
        if (isfinite(node->number))
            cn_buf_printf(out, "%.17g%s", node->number,
                          node->number == trunc(node->number) && fabs(node->number) < 1e15 ? ".0"
                                                                                           : "");
        else
            put_string(node->text, out); /* JSON has no such number */
        return;
    case CN_YAML_STRING:
        put_string(node->text, out);
        return;
    case CN_YAML_LIST:
    case CN_YAML_MAP:
        cn_buf_puts(out, node->kind == CN_YAML_LIST ? "[" : "{");
        for (uint32_t i = 0; i < node->n_items; i++) {
            if (i)
                cn_buf_puts(out, ",");
            if (node->kind == CN_YAML_MAP) {
                put_string(node->items[i]->key, out);
                cn_buf_puts(out, ":");
            }
            put_node(node->items[i], out);
        }
        cn_buf_puts(out, node->kind == CN_YAML_LIST ? "]" : "}");
        return;
    }
}

int
cn_config_json(const char *path, struct cn_buf *out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc;

    if ((rc = cn_yaml_parse_file(path, &doc, err)) != 0)
        return rc;
    put_node(cn_yaml_root(doc), out);
    cn_yaml_destroy(doc);
    return out->failed ? cn_fail(err, CN_E_OUT_OF_MEMORY, "%s: no memory for it as JSON", path) : 0;
}
