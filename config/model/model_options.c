/* config/model/model_options.c - model_options.def as a table: defaults, look-ups, and where a
 * value is written. Any thread.
 *
 * The table drives everything: defaults, types, ranges, messages and the manual page. A new option
 * is a new row. */
#include "config/model/model_options_priv.h"

#include <stdio.h>
#include <string.h>

#include "core/text/suggest.h"

static const struct row rows[] = {
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    {                                                                                              \
        yaml_path,                                                                                 \
        KIND_##kind,                                                                               \
        offsetof(struct cn_model_config, field),                                                   \
        sizeof(c_type),                                                                            \
        default_,                                                                                  \
        min,                                                                                       \
        max,                                                                                       \
        help},
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct torchserve_key torchserve_keys[] = {
#define CN_TORCHSERVE_KEY(key, harmless, note) {key, harmless, note},
#include "config/model/torchserve_keys.def"
#undef CN_TORCHSERVE_KEY
};
#define N_TORCHSERVE_KEYS (sizeof(torchserve_keys) / sizeof(torchserve_keys[0]))

void
cn_model_option_store(struct cn_model_config *config, const struct row *row, uint64_t value)
{
    char *at = (char *)config + row->offset;

    if (row->kind == KIND_BOOL || row->kind == KIND_SWITCH)
        *(bool *)at = value != 0;
    else if (row->kind == KIND_DURABILITY)
        *(enum cn_durability *)at = (enum cn_durability)value;
    else if (row->kind == KIND_SWAP)
        *(enum cn_swap_policy *)at = (enum cn_swap_policy)value;
    else if (row->kind == KIND_EXPIRED)
        *(enum cn_on_expired *)at = (enum cn_on_expired)value;
    else if (row->kind == KIND_PARALLEL)
        *(enum cn_parallel *)at = (enum cn_parallel)value;
    else if (row->kind == KIND_STORE)
        memset(at, 0, row->bytes); /* the default; apply_store writes others */
    else if (row->bytes == sizeof(uint64_t))
        memcpy(at, &value, sizeof(value));
    else
        *(uint32_t *)at = (uint32_t)value;
}

void
cn_model_config_init(struct cn_model_config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < N_ROWS; i++)
        cn_model_option_store(config, &rows[i], rows[i].default_value);
}

bool
cn_model_option_is_branch(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < N_ROWS; i++) {
        if (strncmp(rows[i].path, path, len) == 0 && rows[i].path[len] == '.')
            return true;
    }
    return false;
}

const char *
cn_model_option_nearest(const char *prefix, struct cn_str key, char out[64])
{
    const char *names[N_ROWS + N_TORCHSERVE_KEYS], *best;
    char copies[N_ROWS][64];
    size_t n = 0, len = strlen(prefix);

    for (size_t i = 0; i < N_ROWS; i++) {
        if (strncmp(rows[i].path, prefix, len) != 0)
            continue;
        snprintf(copies[i], sizeof(copies[i]), "%.*s", (int)strcspn(rows[i].path + len, "."),
                 rows[i].path + len);
        names[n++] = copies[i];
    }
    for (size_t i = 0; len == 0 && i < N_TORCHSERVE_KEYS; i++)
        names[n++] = torchserve_keys[i].key;
    best = cn_suggest(key, names, n);
    if (best == NULL)
        return NULL;
    snprintf(out, 64, "%s", best);
    return out;
}

const struct torchserve_key *
cn_model_torchserve_key(struct cn_str key)
{
    for (size_t i = 0; i < N_TORCHSERVE_KEYS; i++)
        if (cn_str_eq(key, cn_str_from(torchserve_keys[i].key)))
            return &torchserve_keys[i];
    return NULL;
}

/* Is `path` this option's, or the same with underscores: batch_size for batchSize? */
static bool
names_row(const struct row *row, const char *path)
{
    const char *known = row->path;

    if (strcmp(known, path) == 0)
        return true;
    if (!strchr(path, '_'))
        return false;
    for (; *path; path++) {
        if (*path == '_')
            continue;
        if (*path != (*known >= 'A' && *known <= 'Z' ? *known + 'a' - 'A' : *known))
            return false;
        known++;
    }
    return *known == '\0';
}

const struct row *
cn_model_option_find(const char *path)
{
    for (size_t r = 0; path[0] != '\0' && r < N_ROWS; r++)
        if (names_row(&rows[r], path))
            return &rows[r];
    return NULL;
}

uint64_t
cn_model_option_default(const char *path)
{
    size_t i = 0;

    while (strcmp(rows[i].path, path) != 0)
        i++;
    return rows[i].default_value;
}
