/* config/server/server_models.c - the list of models to serve, from --models, CONTINUO_MODELS and
 * the file. Main thread.
 *
 * A flag and a variable have words, which may be several with commas; a file may also have a list
 * or a map NAME: FILE. All forms end in add_one, which checks and appends a model. NAME=FILE that
 * is said twice counts once. */
#include <inttypes.h>
#include <strings.h>

#include "config/server/server_options.h"
#include "core/memory/mem.h"

/* Limits the growth by a hostile file; it is far above what one machine serves. */
#define MODELS_MAX 10000

void
cn_server_models_clear(struct cn_server_config *config)
{
    for (uint32_t i = 0; i < config->n_models; i++) {
        cn_free(config->models[i].name);
        cn_free(config->models[i].file);
    }
    cn_free(config->models);
    config->models = NULL;
    config->n_models = 0;
}

static int
add_one(struct cn_server_config *config, const char *where, struct cn_str name, struct cn_str file,
        struct cn_error *err)
{
    struct cn_model_arg *grown;
    char text[CN_YAML_SHOWN_MAX];

    if (file.len == 0 || file.ptr == NULL)
        return cn_fail(err, CN_E_CONFIG, "%s: model \"%s\" names no file; write NAME=FILE or FILE",
                       where, cn_yaml_shown(name, text));
    if (memchr(file.ptr, '\0', file.len) || (name.len && memchr(name.ptr, '\0', name.len)))
        return cn_fail(err, CN_E_CONFIG, "%s: a model's name and file cannot hold a zero byte",
                       where);
    if (config->n_models == MODELS_MAX)
        return cn_fail(err, CN_E_CONFIG, "%s: more than %d models", where, MODELS_MAX);
    for (uint32_t i = 0; name.len && i < config->n_models; i++) {
        if (config->models[i].name && cn_str_eq(cn_str_from(config->models[i].name), name) &&
            cn_str_eq(cn_str_from(config->models[i].file), file))
            return 0; /* named twice */
    }
    grown = cn_try_realloc(config->models, (config->n_models + 1) * sizeof(*grown));
    if (grown == NULL)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "%s: not enough memory for the list of models",
                       where);
    config->models = grown;
    grown[config->n_models++] =
        (struct cn_model_arg){.name = name.ptr ? cn_strndup(name.ptr, name.len) : NULL,
                              .file = cn_strndup(file.ptr, file.len)};
    return 0;
}

/* Adds a piece between commas. An `=` behind a slash belongs to the file, because a URL may contain
 * one. */
static int
add_piece(struct cn_server_config *config, const char *where, struct cn_str piece,
          struct cn_error *err)
{
    const char *equals = memchr(piece.ptr, '=', piece.len);
    const char *slash = memchr(piece.ptr, '/', piece.len);
    struct cn_str name = {NULL, 0}, file = piece;

    if (equals != NULL && (slash == NULL || equals < slash)) {
        name = (struct cn_str){piece.ptr, (size_t)(equals - piece.ptr)};
        file = (struct cn_str){equals + 1, piece.len - name.len - 1};
        if (name.len == 0)
            return cn_fail(err, CN_E_CONFIG,
                           "%s: a model has no name before \"=\"; write "
                           "NAME=FILE or FILE",
                           where);
    } else if (piece.len == 3 && strncasecmp(piece.ptr, "all", 3) == 0) {
        file = CN_STR("all");
    }
    return add_one(config, where, name, file, err);
}

static struct cn_str
trimmed(struct cn_str word)
{
    while (word.len > 0 && word.ptr[0] == ' ') {
        word.ptr++;
        word.len--;
    }
    while (word.len > 0 && word.ptr[word.len - 1] == ' ')
        word.len--;
    return word;
}

int
cn_server_models_add(struct cn_server_config *config, const char *where, struct cn_str word,
                     struct cn_error *err)
{
    struct cn_str piece;
    size_t start = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i <= word.len; i++) {
        if (i < word.len && word.ptr[i] != ',')
            continue;
        piece = trimmed((struct cn_str){word.ptr + start, i - start});
        if (piece.len > 0) /* "a,,b" and a comma at the end are accepted */
            rc = add_piece(config, where, piece, err);
        start = i + 1;
    }
    return rc;
}

static int
add_scalar(struct cn_server_config *config, const char *where, const struct cn_yaml *value,
           bool with_key, struct cn_error *err)
{
    if (value->kind != CN_YAML_STRING)
        return cn_fail(err, CN_E_CONFIG, "%s: models: expected a file name, found %s", where,
                       cn_yaml_kind_word(value->kind));
    return with_key ? add_one(config, where, value->key, value->text, err)
                    : cn_server_models_add(config, where, value->text, err);
}

int
cn_server_models_add_yaml(struct cn_server_config *config, const char *doc_name,
                          const struct cn_yaml *value, struct cn_error *err)
{
    char where[512];
    int rc = 0;

    if (value->kind != CN_YAML_LIST && value->kind != CN_YAML_MAP) {
        snprintf(where, sizeof(where), "%.400s:%u:%u", doc_name, value->line, value->column);
        return value->kind == CN_YAML_NULL ? 0 : add_scalar(config, where, value, false, err);
    }
    for (uint32_t i = 0; rc == 0 && i < value->n_items; i++) {
        const struct cn_yaml *item = value->items[i];
        snprintf(where, sizeof(where), "%.400s:%u:%u", doc_name, item->line, item->column);
        rc = add_scalar(config, where, item, value->kind == CN_YAML_MAP, err);
    }
    return rc;
}

void
cn_model_settings_free(struct cn_model_settings *settings, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        cn_free(settings[i].name);
        cn_free(settings[i].version);
        cn_free(settings[i].mar_name);
    }
    cn_free(settings);
}
