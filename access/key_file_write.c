/* access/key_file_write.c - changes and writes the file with the named keys. */
#include <string.h>

#include "access/key_certificates.h"
#include "access/key_file.h"
#include "access/key_limits.h"
#include "config/yaml/yaml.h"
#include "config/yaml/yaml_write.h"
#include "core/time/clock.h"

static const struct {
    const char *word;
    unsigned scope;
} scopes[] = {
    {"infer", CN_SCOPE_INFER},
    {"manage", CN_SCOPE_MANAGE},
    {"observe", CN_SCOPE_OBSERVE},
};
#define N_SCOPES (sizeof scopes / sizeof scopes[0])

unsigned
cn_key_scope_read(struct cn_str word)
{
    for (size_t i = 0; i < N_SCOPES; i++)
        if (cn_str_eq(word, cn_str_from(scopes[i].word)))
            return scopes[i].scope;
    return 0;
}

/* Appends the words, each between two `quote`. */
static void
write_scopes(unsigned wanted, const char *quote, struct cn_buf *out)
{
    const char *comma = "";

    for (size_t i = 0; i < N_SCOPES; i++)
        if (wanted & scopes[i].scope) {
            cn_buf_printf(out, "%s%s%s%s", comma, quote, scopes[i].word, quote);
            comma = ", ";
        }
}

void
cn_key_scopes_write(unsigned wanted, struct cn_buf *out)
{
    write_scopes(wanted, "", out);
}

/* Has a key of the file this certificate, or has `entry` it at an earlier place? */
static bool
is_taken(const struct cn_key_file *file, const struct cn_key_entry *entry, uint32_t place)
{
    for (uint32_t i = 0; i < place; i++)
        if (cn_str_eq(entry->certificates[i], entry->certificates[place]))
            return true;
    for (uint32_t i = 0; i < file->n; i++)
        for (uint32_t k = 0; k < file->entries[i].n_certificates; k++)
            if (cn_str_eq(file->entries[i].certificates[k], entry->certificates[place]))
                return true;
    return false;
}

int
cn_key_file_add(struct cn_key_file *file, const struct cn_key_entry *entry, struct cn_error *err)
{
    struct cn_key_entry *all, *added;
    char shown[CN_YAML_SHOWN_MAX];

    if (!cn_key_name_is_valid(entry->name))
        return cn_fail(err, CN_E_CONFIG,
                       "\"%s\" cannot be the name of a key: it must be 1 to %d letters, digits, "
                       "dots, hyphens and underscores, with a letter or digit first",
                       cn_yaml_shown(entry->name, shown), CN_KEY_NAME_MAX);
    if (cn_key_file_find(file, entry->name))
        return cn_fail(err, CN_E_CONFIG, "there is a key %.*s already", CN_STR_ARG(entry->name));
    for (uint32_t i = 0; i < entry->n_certificates; i++)
        if (is_taken(file, entry, i))
            return cn_fail(
                err, CN_E_CONFIG,
                "a key has the certificate %.*s already; a certificate belongs to one key",
                CN_STR_ARG(entry->certificates[i]));
    all = cn_arena_alloc(&file->arena, (file->n + 1) * sizeof *all);
    if (file->n)
        memcpy(all, file->entries, file->n * sizeof *all);
    added = &all[file->n++];
    file->entries = all;
    *added = *entry;
    added->name = cn_arena_str(&file->arena, entry->name);
    added->models = cn_arena_alloc(&file->arena, entry->n_models * sizeof *added->models + 1);
    added->certificates =
        cn_arena_alloc(&file->arena, entry->n_certificates * sizeof *added->certificates + 1);
    for (uint32_t i = 0; i < entry->n_models; i++)
        added->models[i] = cn_arena_str(&file->arena, entry->models[i]);
    for (uint32_t i = 0; i < entry->n_certificates; i++)
        added->certificates[i] = cn_arena_str(&file->arena, entry->certificates[i]);
    return 0;
}

static void
write_entry(const struct cn_key_entry *entry, struct cn_buf *out)
{
    char time[25];

    cn_buf_printf(out, "  {\"name\": \"%.*s\"", CN_STR_ARG(entry->name));
    cn_buf_puts(out, entry->has_hash ? ", \"hash\": \"" CN_KEY_HASH_PREFIX : "");
    for (size_t i = 0; entry->has_hash && i < sizeof(entry->hash); i++)
        cn_buf_printf(out, "%02x", entry->hash[i]);
    cn_buf_puts(out, entry->has_hash ? "\"" : "");
    cn_key_certificates_write(entry, out);
    cn_buf_puts(out, ", \"scopes\": [");
    write_scopes(entry->scopes, "\"", out);
    cn_buf_puts(out, "]");
    for (uint32_t i = 0; i < entry->n_models; i++) {
        cn_buf_puts(out, i ? ", " : ", \"models\": [");
        cn_yaml_write_text(entry->models[i], out);
    }
    if (entry->n_models)
        cn_buf_puts(out, "]");
    if (entry->expires_wall_ms != CN_NEVER) {
        cn_wall_format(entry->expires_wall_ms, time);
        cn_buf_printf(out, ", \"expires\": \"%s\"", time);
    }
    cn_buf_puts(out, entry->revoked ? ", \"revoked\": true" : "");
    cn_key_limits_write_json(&entry->limits, out);
    cn_buf_puts(out, "}");
}

void
cn_key_file_write(const struct cn_key_file *file, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"keys\": [");
    for (uint32_t i = 0; i < file->n; i++) {
        cn_buf_puts(out, i ? ",\n" : "\n");
        write_entry(&file->entries[i], out);
    }
    cn_buf_puts(out, "\n]}\n");
}
