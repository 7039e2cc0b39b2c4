/* config/yaml/yaml_write.c - writes a YAML tree as JSON or YAML. Any thread.
 *
 * One writer serves both forms, because YAML 1.2 accepts nearly all of JSON. The exceptions are in
 * odd_character and write_number: characters that YAML does not allow or takes for the end of a
 * line are escaped in both forms, and numbers keep their text in YAML, so that 0x10 or a float of
 * many digits comes back as it was. */
#include "config/yaml/yaml_write.h"

#include <math.h>
#include <string.h>

/* The size of the character at `at` if YAML does not accept it as it is, or takes it for the end of
 * a line; 0 if it needs no escape. All such characters are below U+10000. */
static size_t
odd_character(const char *at, size_t left, unsigned *code)
{
    static const struct {
        const char *bytes;
        unsigned code;
    } others[] = {{"\xe2\x80\xa8", 0x2028},
                  {"\xe2\x80\xa9", 0x2029},
                  {"\xef\xbb\xbf", 0xfeff},
                  {"\xef\xbf\xbe", 0xfffe},
                  {"\xef\xbf\xbf", 0xffff}};
    unsigned char c = (unsigned char)at[0], next = left > 1 ? (unsigned char)at[1] : 0;

    *code = c;
    if (c < 0x20 || c == 0x7f)
        return 1;
    *code = next;
    if (c == 0xc2 && next >= 0x80 && next <= 0x9f)
        return 2;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        *code = others[i].code;
        if (left >= 3 && memcmp(at, others[i].bytes, 3) == 0)
            return 3;
    }
    return 0;
}

void
cn_yaml_write_text(struct cn_str text, struct cn_buf *out)
{
    size_t at = 0;

    cn_buf_append(out, "\"", 1);
    while (at < text.len) {
        unsigned code;
        size_t odd = odd_character(text.ptr + at, text.len - at, &code);

        if (odd)
            cn_buf_printf(out, "\\u%04x", code);
        else if (text.ptr[at] == '"' || text.ptr[at] == '\\')
            cn_buf_printf(out, "\\%c", text.ptr[at]);
        else
            cn_buf_append(out, text.ptr + at, 1);
        at += odd ? odd : 1;
    }
    cn_buf_append(out, "\"", 1);
}

static void
write_number(const struct cn_yaml *node, enum cn_yaml_form form, struct cn_buf *out)
{
    if (form == CN_YAML_AS_YAML)
        cn_buf_append_str(out, node->text);
    else if (node->kind == CN_YAML_INT)
        cn_buf_put_int(out, node->integer);
    else if (isfinite(node->number))
        cn_buf_put_double(out, node->number);
    else
        cn_yaml_write_text(node->text, out);
}

/* Recursive; the parser has limited depth and size. */
void
cn_yaml_write(const struct cn_yaml *node, enum cn_yaml_form form, struct cn_buf *out)
{
    switch (node->kind) {
    case CN_YAML_NULL:
        cn_buf_puts(out, "null");
        return;
    case CN_YAML_BOOL:
        cn_buf_puts(out, node->boolean ? "true" : "false");
        return;
    case CN_YAML_INT:
    case CN_YAML_FLOAT:
        write_number(node, form, out);
        return;
    case CN_YAML_STRING:
        cn_yaml_write_text(node->text, out);
        return;
    case CN_YAML_LIST:
    case CN_YAML_MAP:
        cn_buf_puts(out, node->kind == CN_YAML_LIST ? "[" : "{");
        for (uint32_t i = 0; i < node->n_items; i++) {
            if (i)
                cn_buf_puts(out, ",");
            if (node->kind == CN_YAML_MAP) {
                cn_yaml_write_text(node->items[i]->key, out);
                cn_buf_puts(out, ":");
            }
            cn_yaml_write(node->items[i], form, out);
        }
        cn_buf_puts(out, node->kind == CN_YAML_LIST ? "]" : "}");
        return;
    }
}
