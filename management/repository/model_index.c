/* management/repository/model_index.c - reads the index of an http(s) model store. No state, any
 * thread. */
#include "management/repository/model_index.h"

#include <jansson.h>
#include <string.h>

#include "core/memory/mem.h"
#include "management/repository/model_store.h"

#define DIGEST_DIGITS 64

bool
cn_digest_parse(struct cn_str text, char digest[65])
{
    size_t i;

    if (text.len < DIGEST_DIGITS)
        return false;
    for (i = 0; i < DIGEST_DIGITS; i++) {
        const int value = cn_hex_digit(text.ptr[i]);

        if (value < 0)
            return false;
        digest[i] = "0123456789abcdef"[value];
    }
    digest[i] = '\0';
    return text.len == i || (unsigned char)text.ptr[i] <= ' ';
}

static int
check_file(const char *file, uint32_t number, struct cn_error *err)
{
    for (const char *at = file; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return cn_fail(err, CN_E_CONFIG, "entry %u has a control character in its file name",
                           number);
    if (*file == '/' || strstr(file, "://") || cn_model_store_check_url(file, NULL))
        return cn_fail(err, CN_E_CONFIG,
                       "entry %u names \"%.200s\", which is not a path below the index", number,
                       file);
    if (!cn_model_store_is_archive(file))
        return cn_fail(err, CN_E_CONFIG,
                       "entry %u names \"%.200s\", which is not the name of an archive, such as "
                       "model.mar or model.tar.gz",
                       number, file);
    return 0;
}

static int
take_entry(const json_t *value, uint32_t number, struct cn_model_index_entry *out,
           struct cn_error *err)
{
    const json_t *file = json_is_object(value) ? json_object_get(value, "file") : value;
    const json_t *digest = json_object_get(value, "sha256");
    const struct cn_str text = {json_string_value(digest), json_string_length(digest)};
    int rc;

    if (!json_is_string(file))
        return cn_fail(err, CN_E_CONFIG,
                       "entry %u must be a file name or an object with the member \"file\"",
                       number);
    if ((rc = check_file(json_string_value(file), number, err)) != 0)
        return rc;
    if (digest && (text.len != DIGEST_DIGITS || !cn_digest_parse(text, out->digest)))
        return cn_fail(err, CN_E_CONFIG,
                       "entry %u (%.200s) has a sha256 that is not 64 hexadecimal digits", number,
                       json_string_value(file));
    out->file = cn_strdup(json_string_value(file));
    return 0;
}

static int
take_entries(const json_t *models, struct cn_model_index *out, struct cn_error *err)
{
    const size_t n = json_array_size(models);
    int rc = 0;

    if (!json_is_array(models))
        return cn_fail(err, CN_E_CONFIG, "it must be an object with the array \"models\"");
    if (n > CN_MODEL_INDEX_MAX)
        return cn_fail(err, CN_E_CONFIG, "it names %zu models; allowed are %d", n,
                       CN_MODEL_INDEX_MAX);
    out->entries = cn_alloc((n + 1) * sizeof *out->entries);
    for (; out->n < n && !rc; out->n += rc == 0)
        rc = take_entry(json_array_get(models, out->n), out->n + 1, &out->entries[out->n], err);
    return rc;
}

int
cn_model_index_parse(struct cn_str text, struct cn_model_index *out, struct cn_error *err)
{
    json_error_t wrong;
    json_t *root;
    int rc;

    *out = (struct cn_model_index){0};
    if (text.len > CN_MODEL_INDEX_BYTES_MAX)
        return cn_fail(err, CN_E_CONFIG, "it has %zu bytes; allowed are %u", text.len,
                       CN_MODEL_INDEX_BYTES_MAX);
    root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &wrong);
    if (!root)
        return cn_fail(err, CN_E_CONFIG, "it is not JSON: line %d: %s", wrong.line, wrong.text);
    rc = take_entries(json_object_get(root, "models"), out, err);
    json_decref(root);
    if (rc)
        cn_model_index_fini(out);
    return rc;
}

void
cn_model_index_fini(struct cn_model_index *index)
{
    for (uint32_t i = 0; i < index->n; i++)
        cn_free(index->entries[i].file);
    cn_free(index->entries);
    *index = (struct cn_model_index){0};
}
