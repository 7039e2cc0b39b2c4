/* access/key_file.c - reads the file with the named keys, and checks it.
 *
 *   keys:
 *     - name: web-shop
 *       hash: blake2b:1f0a...             # continuo-ctl keys add prints the key once, and writes
 *       certificates: ["dns:a.example"]   # its hash; a key has a hash, certificates, or both
 *       scopes: [infer, observe]
 *       models: [counter, "asr-*"]        # absent: every model
 *       expires: 2027-01-31T12:00:00Z     # absent: never
 *       revoked: true                     # absent: no
 *       rate: 50                          # this and the other limits: access/key_limits.h
 *
 * JSON is YAML, so one parser reads both. An unknown member is an error: a misspelt `revoked` must
 * not leave a key valid. */
#include "access/key_file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "access/key_certificates.h"
#include "access/key_limits.h"
#include "config/yaml/yaml.h"
#include "core/containers/table.h"
#include "core/memory/mem.h"
#include "core/text/number.h"
#include "core/text/suggest.h"
#include "core/time/clock.h"

/* --- times */

/* Reads `len` digits at `at`. */
static bool
digits(struct cn_str text, size_t at, size_t len, int *out)
{
    uint64_t value;

    if (text.len < at + len || !cn_read_uint((struct cn_str){text.ptr + at, len}, 9999, &value))
        return false;
    *out = (int)value;
    return true;
}

bool
cn_key_time_read(struct cn_str text, uint64_t *wall_ms)
{
    const bool has_time = text.len == 20 || text.len == 24;
    struct tm tm = {0}, given;
    int year, month, ms = 0;
    time_t seconds;

    if ((text.len != 10 && !has_time) || text.ptr[4] != '-' || text.ptr[7] != '-' ||
        !digits(text, 0, 4, &year) || !digits(text, 5, 2, &month) ||
        !digits(text, 8, 2, &tm.tm_mday))
        return false;
    if (has_time && (text.ptr[10] != 'T' || text.ptr[13] != ':' || text.ptr[16] != ':' ||
                     text.ptr[text.len - 1] != 'Z' || !digits(text, 11, 2, &tm.tm_hour) ||
                     !digits(text, 14, 2, &tm.tm_min) || !digits(text, 17, 2, &tm.tm_sec) ||
                     (text.len == 24 && (text.ptr[19] != '.' || !digits(text, 20, 3, &ms)))))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    given = tm;
    seconds = timegm(&tm); /* it turns 31 June into 1 July */
    if (year < 1970 || tm.tm_mon != given.tm_mon || tm.tm_mday != given.tm_mday ||
        tm.tm_hour != given.tm_hour || tm.tm_min != given.tm_min || tm.tm_sec != given.tm_sec)
        return false;
    *wall_ms = (uint64_t)seconds * 1000 + (uint64_t)ms;
    return true;
}

/* --- the members of a key */

bool
cn_key_name_is_valid(struct cn_str name)
{
    if (name.len == 0 || name.len > CN_KEY_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        const char c = name.ptr[i];
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        if (!letter && (i == 0 || !strchr("._-", c) || !c))
            return false;
    }
    return true;
}

/* What the readers of members need. */
struct reader {
    const char *file; /* its name, for messages */
    struct cn_key_file *out;
};

static int
read_name(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
          struct cn_error *err)
{
    if (node->kind != CN_YAML_STRING || !cn_key_name_is_valid(node->text))
        return cn_yaml_refuse(reader->file, node, "name",
                              "1 to 64 letters, digits, dots, hyphens and underscores, with a "
                              "letter or digit first (a number needs quotes)",
                              err);
    entry->name = cn_arena_str(&reader->out->arena, node->text);
    return 0;
}

static int
read_hash(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
          struct cn_error *err)
{
    const size_t before = sizeof(CN_KEY_HASH_PREFIX) - 1;
    bool fine = node->kind == CN_YAML_STRING &&
                node->text.len == before + 2 * sizeof(entry->hash) &&
                cn_str_begins(node->text, CN_STR(CN_KEY_HASH_PREFIX));

    for (size_t i = 0; fine && i < sizeof(entry->hash); i++) {
        const char *at = node->text.ptr + before + 2 * i;
        const int high = cn_hex_digit(at[0]), low = cn_hex_digit(at[1]);

        fine = high >= 0 && low >= 0;
        entry->hash[i] = (unsigned char)(high * 16 + low);
    }
    entry->has_hash = true;
    return fine ? 0
                : cn_yaml_refuse(reader->file, node, "hash",
                                 "blake2b: and 64 hexadecimal digits, as continuo-ctl keys add "
                                 "writes it",
                                 err);
}

static int
read_scopes(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
            struct cn_error *err)
{
    static const char expected[] = "a list of infer, manage and observe, with at least one of them";

    if (node->kind != CN_YAML_LIST || node->n_items == 0)
        return cn_yaml_refuse(reader->file, node, "scopes", expected, err);
    for (uint32_t i = 0; i < node->n_items; i++) {
        const struct cn_yaml *item = node->items[i];
        const unsigned scope = item->kind == CN_YAML_STRING ? cn_key_scope_read(item->text) : 0;

        if (!scope)
            return cn_yaml_refuse(reader->file, item, "scopes", expected, err);
        entry->scopes |= scope;
    }
    return 0;
}

static int
read_models(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
            struct cn_error *err)
{
    static const char expected[] =
        "a list of models' names, in which * stands for any characters (leave the member out for "
        "every model)";

    if (node->kind != CN_YAML_LIST || node->n_items == 0)
        return cn_yaml_refuse(reader->file, node, "models", expected, err);
    entry->models = cn_arena_alloc(&reader->out->arena, node->n_items * sizeof *entry->models);
    for (uint32_t i = 0; i < node->n_items; i++) {
        const struct cn_yaml *item = node->items[i];

        if (item->kind != CN_YAML_STRING || item->text.len == 0 ||
            item->text.len > CN_KEY_PATTERN_MAX)
            return cn_yaml_refuse(reader->file, item, "models", expected, err);
        entry->models[i] = cn_arena_str(&reader->out->arena, item->text);
    }
    entry->n_models = node->n_items;
    return 0;
}

static int
read_expires(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
             struct cn_error *err)
{
    if (node->kind == CN_YAML_STRING && cn_key_time_read(node->text, &entry->expires_wall_ms))
        return 0;
    return cn_yaml_refuse(reader->file, node, "expires",
                          "a day or time in UTC, such as 2027-01-31 or 2027-01-31T12:00:00Z", err);
}

static int
read_revoked(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
             struct cn_error *err)
{
    if (node->kind != CN_YAML_BOOL)
        return cn_yaml_refuse(reader->file, node, "revoked", "true or false", err);
    entry->revoked = node->boolean;
    return 0;
}

static int
read_certificates(const struct reader *reader, const struct cn_yaml *node,
                  struct cn_key_entry *entry, struct cn_error *err)
{
    return cn_key_certificates_take(reader->file, node, &reader->out->arena, entry, err);
}

static int
read_limit(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
           struct cn_error *err)
{
    return cn_key_limit_take(reader->file, node, &entry->limits, err);
}

static const struct {
    const char *name;
    int (*read)(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
                struct cn_error *err);
} members[] = {
    {"name", read_name},
    {"scopes", read_scopes},
    {"hash", read_hash},
    {"certificates", read_certificates},
    {"models", read_models},
    {"expires", read_expires},
    {"revoked", read_revoked},
    {"rate", read_limit},
    {"burst", read_limit},
    {"concurrency", read_limit},
    {"maxNumSequence", read_limit},
    {"storedBytes", read_limit},
};
#define N_MEMBERS (sizeof members / sizeof members[0])
#define N_REQUIRED 2 /* the first two */

static int
refuse_member(const char *file, const struct cn_yaml *node, struct cn_error *err)
{
    const char *names[N_MEMBERS], *near;
    char shown[CN_YAML_SHOWN_MAX];

    for (size_t i = 0; i < N_MEMBERS; i++)
        names[i] = members[i].name;
    near = cn_suggest(node->key, names, N_MEMBERS);
    return cn_fail(
        err, CN_E_CONFIG,
        "%s:%u:%u: a key has no member \"%s\"%s%s%s; its members are name, hash, "
        "certificates, scopes, models, expires, revoked, rate, burst, concurrency, maxNumSequence "
        "and storedBytes",
        file, node->key_line, node->key_column, cn_yaml_shown(node->key, shown),
        near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static int
read_entry(const struct reader *reader, const struct cn_yaml *node, struct cn_key_entry *entry,
           struct cn_error *err)
{
    char where[512];
    size_t k;
    int rc = 0;

    *entry = (struct cn_key_entry){.expires_wall_ms = CN_NEVER};
    if (node->kind != CN_YAML_MAP)
        return cn_yaml_refuse(reader->file, node, "keys",
                              "a map with name, scopes, and hash or certificates", err);
    for (uint32_t i = 0; !rc && i < node->n_items; i++) {
        const struct cn_yaml *item = node->items[i];

        for (k = 0; k < N_MEMBERS && !cn_str_eq(item->key, cn_str_from(members[k].name)); k++)
            continue;
        rc = k < N_MEMBERS ? members[k].read(reader, item, entry, err)
                           : refuse_member(reader->file, item, err);
    }
    if (!rc && !entry->has_hash && !entry->n_certificates)
        rc = cn_fail(err, CN_E_CONFIG,
                     "%s:%u:%u: the key has no hash and no certificates; it needs one of them",
                     reader->file, node->line, node->column);
    for (k = 0; !rc && k < N_REQUIRED; k++)
        if (!cn_yaml_get(node, members[k].name))
            rc = cn_fail(err, CN_E_CONFIG, "%s:%u:%u: the key has no %s", reader->file, node->line,
                         node->column, members[k].name);
    snprintf(where, sizeof where, "%.400s:%u:%u: the key", reader->file, node->line, node->column);
    return rc ? rc : cn_key_limits_check(where, &entry->limits, err);
}

/* --- the whole file */

static struct cn_str
name_of(const void *item)
{
    return ((const struct cn_key_entry *)item)->name;
}

/* Half of a hash is enough to tell keys apart, and the server finds them by this half, too. */
static struct cn_str
hash_of(const void *item)
{
    return (struct cn_str){(const char *)((const struct cn_key_entry *)item)->hash,
                           CN_KEY_HASH_BYTES / 2};
}

static struct cn_str
itself(const void *item)
{
    return *(const struct cn_str *)item;
}

/* Notes the names of the key's certificates. CN_E_CONFIG: a key has one of them already. */
static int
note_certificates(struct cn_table *known, const struct reader *reader, const struct cn_yaml *node,
                  struct cn_key_entry *entry, struct cn_error *err)
{
    for (uint32_t i = 0; i < entry->n_certificates; i++)
        if (cn_table_find(known, entry->certificates[i]))
            return cn_fail(err, CN_E_CONFIG,
                           "%s:%u:%u: the key %.*s has the certificate %.*s, which a key has "
                           "already; a certificate belongs to one key",
                           reader->file, node->line, node->column, CN_STR_ARG(entry->name),
                           CN_STR_ARG(entry->certificates[i]));
        else
            cn_table_insert(known, &entry->certificates[i]);
    return 0;
}

static int
read_entries(const struct reader *reader, const struct cn_yaml *list, struct cn_error *err)
{
    struct cn_table *names = cn_table_create(name_of), *hashes = cn_table_create(hash_of);
    struct cn_table *certificates = cn_table_create(itself);
    struct cn_key_file *out = reader->out;
    int rc = 0;

    out->entries = cn_arena_alloc(&out->arena, list->n_items * sizeof *out->entries + 1);
    for (uint32_t i = 0; !rc && i < list->n_items; i++) {
        const struct cn_yaml *node = list->items[i];
        struct cn_key_entry *entry = &out->entries[i];

        rc = read_entry(reader, node, entry, err);
        if (rc)
            break;
        rc = note_certificates(certificates, reader, node, entry, err);
        if (rc)
            break;
        if (cn_table_find(names, entry->name) ||
            (entry->has_hash && cn_table_find(hashes, hash_of(entry))))
            rc = cn_fail(err, CN_E_CONFIG,
                         "%s:%u:%u: the key %.*s has the name or the hash of a key before it",
                         reader->file, node->line, node->column, CN_STR_ARG(entry->name));
        else {
            cn_table_insert(names, entry);
            if (entry->has_hash)
                cn_table_insert(hashes, entry);
            out->n++;
        }
    }
    cn_table_destroy(names);
    cn_table_destroy(hashes);
    cn_table_destroy(certificates);
    return rc;
}

/* Reads the keys, and frees the document. */
static int
take_document(struct cn_yaml_doc *doc, struct cn_key_file *out, struct cn_error *err)
{
    const struct reader reader = {.file = cn_yaml_name(doc), .out = out};
    const struct cn_yaml *root = cn_yaml_root(doc), *list = cn_yaml_get(root, "keys");
    int rc;

    cn_key_file_init(out);
    if (!list || list->kind != CN_YAML_LIST || root->n_items != 1)
        rc = cn_fail(err, CN_E_CONFIG,
                     "%s:%u:%u: the file must be a map whose only member, keys, is a list",
                     reader.file, root->line, root->column);
    else
        rc = read_entries(&reader, list, err);
    if (rc)
        cn_key_file_fini(out);
    cn_yaml_destroy(doc);
    return rc;
}

int
cn_key_file_parse(const char *name, struct cn_str bytes, struct cn_key_file *out,
                  struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = cn_yaml_parse(name, bytes, &doc, err);

    return rc ? rc : take_document(doc, out, err);
}

int
cn_key_file_read(const char *path, struct cn_key_file *out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = cn_yaml_parse_file(path, &doc, err);

    return rc ? rc : take_document(doc, out, err);
}

void
cn_key_file_init(struct cn_key_file *file)
{
    *file = (struct cn_key_file){.n = 0};
    cn_arena_init(&file->arena);
}

void
cn_key_file_fini(struct cn_key_file *file)
{
    cn_arena_fini(&file->arena);
    file->entries = NULL;
    file->n = 0;
}

struct cn_key_entry *
cn_key_file_find(struct cn_key_file *file, struct cn_str name)
{
    for (uint32_t i = 0; i < file->n; i++)
        if (cn_str_eq(file->entries[i].name, name))
            return &file->entries[i];
    return NULL;
}
