/* torchserve/settings/properties.c - reads Java's properties files (java.util.Properties.load).
 * Main thread.
 *
 * TorchServe is a Java program, so its config.properties has rules that look odd elsewhere. Lines
 * that end with an odd number of backslashes go on in the next line, whose leading blanks are
 * dropped. A key ends at the first "=", ":" or blank that has no backslash before it. "#" and "!"
 * begin comments, but only at the beginning of a line. \n, \t, \uXXXX and a few more are escapes;
 * other backslashes are dropped, which is why paths of Windows do not survive.
 *
 * The list keeps the order of the file, and a key that comes again replaces the value but keeps its
 * place, because snapshots print the properties in this order. Each property knows where it came
 * from, for messages. */
#include "torchserve/settings/properties.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/memory/mem.h"

struct cursor {
    const char *at, *end;
    const char *name;
    uint32_t line; /* of `at` */
};

/* --- the list */

const struct cn_property *
cn_properties_find(const struct cn_properties *properties, const char *key)
{
    for (uint32_t i = 0; i < properties->n; i++) {
        if (strcmp(properties->items[i].key, key) == 0)
            return &properties->items[i];
    }
    return NULL;
}

int
cn_properties_set(struct cn_properties *into, struct cn_str key, struct cn_str value,
                  const char *where, struct cn_error *err)
{
    struct cn_property *grown, fresh;
    char *text = cn_strndup(key.ptr ? key.ptr : "", key.len);
    const struct cn_property *known = cn_properties_find(into, text);

    fresh = (struct cn_property){text, cn_strndup(value.ptr ? value.ptr : "", value.len),
                                 cn_strdup(where)};
    if (known != NULL) {
        struct cn_property *old = &into->items[known - into->items];

        cn_free(old->key);
        cn_free(old->value);
        cn_free(old->where);
        *old = fresh;
        return 0;
    }
    grown = into->n < CN_PROPERTIES_MAX
                ? cn_try_realloc(into->items, (into->n + 1) * sizeof(*grown))
                : NULL;
    if (grown == NULL) {
        cn_free(fresh.key);
        cn_free(fresh.value);
        cn_free(fresh.where);
        return cn_fail(err, CN_E_CONFIG, "%s: more than %d keys", where, CN_PROPERTIES_MAX);
    }
    into->items = grown;
    grown[into->n++] = fresh;
    return 0;
}

void
cn_properties_fini(struct cn_properties *properties)
{
    for (uint32_t i = 0; i < properties->n; i++) {
        cn_free(properties->items[i].key);
        cn_free(properties->items[i].value);
        cn_free(properties->items[i].where);
    }
    cn_free(properties->items);
    *properties = (struct cn_properties){0};
}

/* --- reading */

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static bool
is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static void
skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_blank(*cursor->at))
        cursor->at++;
}

/* Skips a line end; a carriage return with a line feed counts as one. */
static void
skip_line_end(struct cursor *cursor)
{
    if (cursor->at >= cursor->end)
        return;
    if (*cursor->at == '\r' && cursor->at + 1 < cursor->end && cursor->at[1] == '\n')
        cursor->at++;
    cursor->at++;
    cursor->line++;
}

static int
hex4(struct cursor *cursor, uint32_t *out)
{
    uint32_t value = 0;

    if (cursor->end - cursor->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *cursor->at++;
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a' + 10);
        else
            return -1;
        value = value << 4 | digit;
    }
    *out = value;
    return 0;
}

static void
put_utf8(struct cn_buf *out, uint32_t code)
{
    char bytes[4];
    size_t n;

    if (code < 0x80) {
        bytes[0] = (char)code;
        n = 1;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        n = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        n = 3;
    } else {
        bytes[0] = (char)(0xf0 | code >> 18);
        bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
        bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[3] = (char)(0x80 | (code & 0x3f));
        n = 4;
    }
    cn_buf_append(out, bytes, n);
}

/* Reads what follows "\u". A surrogate must be followed by its partner. */
static int
read_unicode(struct cursor *cursor, struct cn_buf *out, struct cn_error *err)
{
    uint32_t code, low;

    if (hex4(cursor, &code) != 0 || code == 0)
        goto bad;
    if (code >= 0xd800 && code < 0xdc00) {
        if (cursor->end - cursor->at < 6 || cursor->at[0] != '\\' || cursor->at[1] != 'u')
            goto bad;
        cursor->at += 2;
        if (hex4(cursor, &low) != 0 || low < 0xdc00 || low > 0xdfff)
            goto bad;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        goto bad;
    }
    put_utf8(out, code);
    return 0;
bad:
    return cn_fail(err, CN_E_CONFIG,
                   "%s:%u: \\u must be followed by the four hex digits of a character (not zero; "
                   "surrogates only in pairs)",
                   cursor->name, cursor->line);
}

/* Reads what follows a backslash. */
static int
read_escape(struct cursor *cursor, struct cn_buf *out, struct cn_error *err)
{
    char c;

    if (cursor->at >= cursor->end)
        return 0; /* a backslash at the end of the file has no next line to join */
    if (is_line_end(*cursor->at)) {
        skip_line_end(cursor);
        skip_blanks(cursor);
        return 0;
    }
    c = *cursor->at++;
    switch (c) {
    case 'u':
        return read_unicode(cursor, out, err);
    case 't':
        c = '\t';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 'f':
        c = '\f';
        break;
    default:
        break;
    }
    cn_buf_append(out, &c, 1);
    return 0;
}

/* Reads a key or a value: up to the end of the logical line, or, for a key, up to a separator
 * without a backslash. */
static int
read_part(struct cursor *cursor, bool is_key, struct cn_buf *out, struct cn_error *err)
{
    while (cursor->at < cursor->end && !is_line_end(*cursor->at)) {
        char c = *cursor->at;

        if (is_key && (c == '=' || c == ':' || is_blank(c)))
            return 0;
        cursor->at++;
        if (c == '\0')
            return cn_fail(err, CN_E_CONFIG,
                           "%s:%u: the line has a zero byte, so this is not a properties file",
                           cursor->name, cursor->line);
        if (c != '\\')
            cn_buf_append(out, &c, 1);
        else if (read_escape(cursor, out, err) != 0)
            return CN_E_CONFIG;
    }
    return 0;
}

/* Skips the separator between key and value: blanks, at most one '=' or ':', and blanks again. */
static void
skip_separator(struct cursor *cursor)
{
    skip_blanks(cursor);
    if (cursor->at < cursor->end && (*cursor->at == '=' || *cursor->at == ':')) {
        cursor->at++;
        skip_blanks(cursor);
    }
}

static int
read_pair(struct cursor *cursor, struct cn_properties *into, struct cn_buf *key,
          struct cn_buf *value, struct cn_error *err)
{
    char where[512];
    int rc;

    snprintf(where, sizeof(where), "%.400s:%u", cursor->name, cursor->line);
    cn_buf_reset(key);
    cn_buf_reset(value);
    rc = read_part(cursor, true, key, err);
    if (rc != 0)
        return rc;
    skip_separator(cursor);
    rc = read_part(cursor, false, value, err);
    if (rc != 0)
        return rc;
    return cn_properties_set(into, cn_buf_str(key), cn_buf_str(value), where, err);
}

int
cn_properties_parse(const char *name, struct cn_str text, struct cn_properties *into,
                    struct cn_error *err)
{
    struct cursor cursor = {text.ptr, text.ptr, name, 1};
    struct cn_buf key, value;
    int rc = 0;

    if (text.len > 0) /* the pointer of an empty text may be NULL */
        cursor.end += text.len;
    cn_buf_init(&key, 0);
    cn_buf_init(&value, 0);
    while (rc == 0 && cursor.at < cursor.end) {
        skip_blanks(&cursor);
        if (cursor.at >= cursor.end)
            break;
        if (is_line_end(*cursor.at)) {
            skip_line_end(&cursor);
        } else if (*cursor.at == '#' || *cursor.at == '!') {
            while (cursor.at < cursor.end && !is_line_end(*cursor.at))
                cursor.at++;
        } else {
            rc = read_pair(&cursor, into, &key, &value, err);
        }
    }
    cn_buf_fini(&key);
    cn_buf_fini(&value);
    return rc;
}

int
cn_properties_read(const char *path, struct cn_properties *into, struct cn_error *err)
{
    FILE *file = fopen(path, "re");
    struct cn_buf text;
    char chunk[8192];
    size_t n;
    int rc = 0;

    if (file == NULL)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read %s", path);
    cn_buf_init(&text, CN_PROPERTIES_MAX_BYTES);
    while (!text.failed && (n = fread(chunk, 1, sizeof(chunk), file)) > 0)
        cn_buf_append(&text, chunk, n);
    if (ferror(file))
        rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read %s", path);
    else if (text.failed)
        rc = cn_fail(err, CN_E_CONFIG, "%s is larger than %u bytes, so it is not a properties file",
                     path, CN_PROPERTIES_MAX_BYTES);
    fclose(file);
    if (rc == 0)
        rc = cn_properties_parse(path, cn_buf_str(&text), into, err);
    cn_buf_fini(&text);
    return rc;
}

/* --- writing */

static void
print_escaped(const char *text, bool is_key, struct cn_buf *out)
{
    for (const char *at = text; *at != '\0'; at++) {
        switch (*at) {
        case '\t':
            cn_buf_puts(out, "\\t");
            break;
        case '\n':
            cn_buf_puts(out, "\\n");
            break;
        case '\r':
            cn_buf_puts(out, "\\r");
            break;
        case '\f':
            cn_buf_puts(out, "\\f");
            break;
        case ' ':
            cn_buf_puts(out, is_key || at == text ? "\\ " : " ");
            break;
        case '=':
        case ':':
        case '#':
        case '!':
        case '\\':
            cn_buf_printf(out, "\\%c", *at);
            break;
        default:
            cn_buf_append(out, at, 1);
        }
    }
}

void
cn_property_print(const char *key, const char *value, struct cn_buf *out)
{
    print_escaped(key, true, out);
    cn_buf_puts(out, "=");
    print_escaped(value, false, out);
    cn_buf_puts(out, "\n");
}

void
cn_properties_print(const struct cn_properties *properties, struct cn_buf *out)
{
    for (uint32_t i = 0; i < properties->n; i++)
        cn_property_print(properties->items[i].key, properties->items[i].value, out);
}
