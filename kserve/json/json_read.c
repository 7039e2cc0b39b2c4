/* kserve/json/json_read.c - reads an inference request: its JSON, and the binary tensors after it.
 * Any thread.
 *
 * The document is read in the protocol's order (id, parameters, inputs, outputs) and not in its
 * own, so that of several errors the same one is always reported first.
 *
 * There are three ways, tried in this order. read_known() finds a request whose JSON was read
 * before (json_heads.h), and adds its data. read_cut() lets json_numbers.h cut out the arrays of
 * numbers and what else differs from one request to the next, and the rest may be known, too. If
 * anything is unusual, these attempts leave no trace, and read_document() reads the request as one
 * document and reports the error.
 *
 * All numbers and sizes of the client are checked before memory is allocated for them.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kserve/json/json_read_priv.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"

/* Takes a field that was cut out of the document. Returns false if it was not. */
static bool
cut_field(const struct reader *reader, enum cn_v2_field field, struct cn_str *out, bool *is_text)
{
    return reader->cuts && cn_v2_cut_field(reader->cuts, field, out, is_text);
}

/* Reads the id of a request, which is not that of a sequence. */
static int
read_id(const struct reader *reader, const json_t *root)
{
    struct cn_str text;
    bool is_text;

    if (!cut_field(reader, CN_V2_FIELD_ID, &text, &is_text))
        return cn_v2_field_string(reader, root, "id", false, &reader->out->id);
    reader->out->id = cn_arena_str(reader->arena, text);
    return 0;
}

/* An id is an integer or a text; 0 and "" stand for no sequence. */
static int
read_sequence_id(const struct reader *reader, const char *key, const json_t *value)
{
    struct cn_v2_request *out = reader->out;
    struct cn_str cut, *text = &out->sequence_text;
    bool is_text;

    *text = CN_STR("");
    if (cut_field(reader, CN_V2_FIELD_SEQUENCE_ID, &cut, &is_text)) {
        if (is_text)
            *text = cn_arena_str(reader->arena, cut);
        else
            out->sequence_number = cn_v2_cut_number(cut);
    } else if (cn_v2_json_is_string(value)) {
        *text = cn_v2_field_text(reader, value);
    } else if (!cn_v2_json_uint(value, &out->sequence_number)) {
        return cn_v2_field_unable(reader, key, "string", "string");
    }
    out->sequence_kind = text->len              ? CN_V2_ID_TEXT
                         : out->sequence_number ? CN_V2_ID_NUMBER
                                                : CN_V2_NO_ID;
    return 0;
}

/* Reads the expected step number; its range is checked together with the header's. */
static int
read_step(const struct reader *reader, const json_t *value)
{
    struct cn_str cut;
    bool is_text;

    if (cut_field(reader, CN_V2_FIELD_SEQUENCE_STEP, &cut, &is_text))
        reader->out->step = cn_v2_cut_number(cut);
    else if (!cn_v2_json_uint(value, &reader->out->step))
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter sequence_step must be an integer; steps are counted from 1");
    reader->out->has_step = true;
    return 0;
}

/* Reads one of the request's parameters: one that the protocol defines, or one for the model. */
static int
read_parameter(const struct reader *reader, const char *key, const json_t *value)
{
    struct cn_v2_request *out = reader->out;
    int rc;

    if (strcmp(key, "sequence_id") == 0)
        return read_sequence_id(reader, key, value);
    if (strcmp(key, "sequence_start") == 0)
        return cn_v2_field_bool(reader, key, value, &out->start);
    if (strcmp(key, "sequence_end") == 0)
        return cn_v2_field_bool(reader, key, value, &out->end);
    if (strcmp(key, "sequence_step") == 0)
        return read_step(reader, value);
    if (strcmp(key, "priority") == 0)
        return cn_v2_field_uint(reader, key, value, &out->priority);
    if (strcmp(key, "timeout") == 0)
        return cn_v2_field_uint(reader, key, value, &out->timeout_us);
    if (strcmp(key, "binary_data_output") == 0)
        return cn_v2_field_bool(reader, key, value, &out->binary_by_default);
    if (strncmp(key, "triton_", 7) == 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter keys starting with 'triton_' are reserved for Triton usage and "
                       "should not be specified.");
    if ((rc =
             cn_v2_json_param(key, value, reader->arena, &out->params[out->n_params], reader->err)))
        return rc;
    out->n_params++;
    return 0;
}

static int
read_parameters(const struct reader *reader, const json_t *root)
{
    json_t *map, *value;
    const char *key;
    size_t count;
    int rc;

    if (!(map = cn_v2_json_get(root, "parameters")))
        return 0;
    if (!json_is_object(map))
        return cn_v2_field_unable(reader, "parameters", "object", "object");
    count = json_object_size(map);
    if (count > CN_V2_PARAMS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "the request has %zu parameters; the limit is %d", count, CN_V2_PARAMS_MAX);
    reader->out->params =
        cn_arena_alloc(reader->arena, sizeof(struct cn_v2_param) * (count ? count : 1));
    json_object_foreach(map, key, value)
    {
        if ((rc = read_parameter(reader, key, value)))
            return rc;
    }
    return 0;
}

static int
read_root(struct reader *reader, const json_t *root)
{
    int rc;

    if (!json_is_object(root))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "failed to parse the request JSON buffer: the document is not an object");
    rc = read_id(reader, root);
    if (!rc)
        rc = read_parameters(reader, root);
    if (!rc)
        rc = cn_v2_read_inputs(reader, root);
    if (!rc)
        rc = cn_v2_read_outputs(reader, root);
    return rc;
}

/* Reads the fields that were cut out. They have no document. */
static void
read_cut_fields(const struct reader *reader)
{
    const struct cn_str *fields = reader->cuts->fields;

    if (fields[CN_V2_FIELD_ID].ptr)
        read_id(reader, NULL);
    if (fields[CN_V2_FIELD_SEQUENCE_ID].ptr)
        read_sequence_id(reader, "sequence_id", NULL);
    if (fields[CN_V2_FIELD_SEQUENCE_STEP].ptr)
        read_step(reader, NULL);
}

/* Tries to read a request whose head was read before. Returns false if that is not possible. */
static bool
read_known(const struct reader *like, struct cn_str head)
{
    struct reader reader = *like;
    const struct cn_v2_source *sources = cn_v2_head_find(head, reader.arena, reader.out);

    if (!sources)
        return false;
    reader.err = NULL; /* the full document will report the error */
    if (reader.cuts)
        read_cut_fields(&reader);
    if (cn_v2_fill_inputs(&reader, sources) &&
        (!reader.cuts || reader.cuts->taken == reader.cuts->found))
        return true;
    *reader.out = (struct cn_v2_request){.batch = 1};
    return false;
}

/* Lets read_known() find the request by its head. What was cut out is not a part of it. */
static void
keep(const struct reader *reader, struct cn_str head)
{
    struct cn_v2_request request = *reader->out;

    if (reader->cuts && reader->cuts->fields[CN_V2_FIELD_ID].ptr)
        request.id = CN_STR("");
    if (reader->cuts && reader->cuts->fields[CN_V2_FIELD_SEQUENCE_ID].ptr) {
        request.sequence_kind = CN_V2_NO_ID;
        request.sequence_number = 0;
        request.sequence_text = CN_STR("");
    }
    if (reader->cuts && reader->cuts->fields[CN_V2_FIELD_SEQUENCE_STEP].ptr)
        request.step = 0;
    cn_v2_head_keep(head, &request, reader->sources);
}

static int
read_document(struct reader *reader, struct cn_str json)
{
    json_t *root;
    int rc = cn_v2_json_load(json, &root, reader->err);

    if (rc)
        return rc;
    rc = read_root(reader, root);
    json_decref(root);
    return rc;
}

/* Tries to read the request without what json_numbers.h cuts out of it. Returns false when that is
 * not possible; the caller then reads it as if nothing had happened. */
static bool
read_cut(struct cn_str json, const struct reader *like)
{
    struct reader reader = *like;
    struct cn_v2_cuts cuts;

    if (!cn_v2_cut(json, &cuts))
        return false;
    reader.cuts = &cuts;
    reader.err = NULL; /* the full document will report the error */
    if (read_known(&reader, cn_v2_cut_head(&cuts)))
        return true;
    cuts.taken = 0;
    if (read_document(&reader, cn_v2_cut_head(&cuts)) == 0 &&
        cuts.taken == cuts.found) { /* what nobody took has not been checked */
        keep(&reader, cn_v2_cut_head(&cuts));
        return true;
    }
    *reader.out = (struct cn_v2_request){.batch = 1};
    return false;
}

int
cn_v2_read(struct cn_str body, size_t json_len, const char *model,
           const struct cn_v2_limits *limits, struct cn_arena *arena, struct cn_v2_request *out,
           struct cn_error *err)
{
    const struct cn_str json = {body.ptr, json_len};
    const bool is_binary = json_len < body.len;
    struct reader reader = {.out = out,
                            .arena = arena,
                            .limits = limits,
                            .model = model,
                            .tail = {body.ptr + json_len, body.len - json_len},
                            .err = err};
    int rc;

    *out = (struct cn_v2_request){.batch = 1};
    if (json_len > limits->json_bytes || json_len > INT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "request JSON size of %zu bytes exceeds the maximum allowed input size of "
                       "%zu bytes. Use --max-v2-request-size to increase the limit.",
                       json_len, limits->json_bytes);
    /* A client whose tensors are binary may send the same JSON each time, with all it has. */
    if ((is_binary && read_known(&reader, json)) || read_cut(json, &reader))
        return 0;
    rc = read_document(&reader, json);
    if (!rc && is_binary)
        keep(&reader, json);
    return rc;
}

int
cn_v2_read_json_length(struct cn_str header, size_t body_len, size_t *out, struct cn_error *err)
{
    char text[32], *end;
    long long value;

    if (header.len == 0 || header.len >= sizeof(text))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, got: %.*s",
                       (int)(header.len < 64 ? header.len : 64), header.ptr ? header.ptr : "");
    memcpy(text, header.ptr, header.len);
    text[header.len] = '\0';
    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, got: %s", text);
    if (errno || value < INT_MIN || value > INT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, value is out of range "
                       "[ -2147483648, 2147483647 ], got: %s",
                       text);
    if (value < 0 || (size_t)value > body_len)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference header size should be in range (0, %zu), got: %s", body_len,
                       text);
    *out = (size_t)value;
    return 0;
}
