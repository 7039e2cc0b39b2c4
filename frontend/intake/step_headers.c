/* frontend/intake/step_headers.c - reads the headers that control a step: sequence id, start, end,
 * idempotency key, step number.
 *
 * Each of them has several names, since TorchServe, SageMaker and Continuo have their own
 * (sequence_names.c). A client, or a proxy between, may send two of them. They may say the same
 * thing twice, but if they differ the request is refused and never guessed at: a wrong guess would
 * run a step in another client's sequence. Errors name both headers and both values. */
#include "frontend/intake/step_headers.h"

#include <inttypes.h>

#include "core/text/suggest.h"
#include "core/text/utf8.h"
#include "frontend/intake/headers.h"

#define MISSPELT_EDITS 2     /* letters that may be wrong in a name that means a known one */
#define MISSPELT_NAME_MIN 15 /* of a known name */

/* Reads a flag. `first` is the header that has set it before, or NULL. */
static int
read_flag(const struct cn_header *header, const struct cn_header **first, bool *out,
          struct cn_error *err)
{
    const bool value = cn_str_eq_nocase(header->value, CN_STR("true"));

    if (header->value.len == 0)
        return 0;
    if (!value && !cn_str_eq_nocase(header->value, CN_STR("false")))
        return cn_fail(err, CN_E_BAD_REQUEST, "header %.*s is \"%.*s\"; it must be true or false",
                       CN_STR_ARG(header->name),
                       header->value.len > 40 ? 40 : (int)header->value.len, header->value.ptr);
    if (*first && *out != value)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "header %.*s is \"%.*s\", and header %.*s is \"%.*s\"; send one of them",
                       CN_STR_ARG((*first)->name), CN_STR_ARG((*first)->value),
                       CN_STR_ARG(header->name), CN_STR_ARG(header->value));
    *first = header;
    *out = value;
    return 0;
}

/* Returns how many bytes of a name or id to show in an error message, so that two of them fit. */
static int
shown_len(struct cn_str text)
{
    return text.len > 60 ? (int)cn_utf8_cut(text, 60) : (int)text.len;
}

int
cn_intake_refuse_two_ids(const struct cn_sequence_headers *first, const struct cn_header *second,
                         struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the request names two different sequences: %.*s is \"%.*s\", and %.*s is "
                   "\"%.*s\"; send one of them",
                   shown_len(first->id_name), first->id_name.ptr, shown_len(first->id),
                   first->id.ptr, shown_len(second->name), second->name.ptr,
                   shown_len(second->value), second->value.ptr);
}

int
cn_intake_read_id(const struct cn_header *header, struct cn_sequence_headers *out,
                  struct cn_error *err)
{
    if (header->value.len == 0)
        return 0;
    if (header->value.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; the limit is %d",
                       header->value.len, CN_SEQUENCE_ID_MAX);
    if (!cn_utf8_is_printable(header->value))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a sequence id must be UTF-8 without control characters");
    if (out->id.len > 0 && !cn_str_eq(out->id, header->value))
        return cn_intake_refuse_two_ids(out, header, err);
    if (out->id.len == 0)
        out->id_name = header->name;
    out->id = header->value;
    return 0;
}

/* A header that is nearly one of these has a typing error. If it were ignored, the step would run
 * in a new sequence, or would not begin or end one. Short names, which an operator may have chosen,
 * are near to too many others. */
static int
refuse_misspelt(struct cn_str name, struct cn_error *err)
{
    const struct cn_str known[] = {
        cn_sequence_name(CN_NAME_ID),    cn_sequence_name(CN_NAME_START),
        cn_sequence_name(CN_NAME_END),   CN_STR(CN_SHORT_SEQUENCE_HEADER),
        CN_STR(CN_LONG_SEQUENCE_HEADER), CN_STR("ts-request-sequence-step"),
        CN_STR("continuo-sequence-step")};
    unsigned best = MISSPELT_EDITS + 1;
    size_t nearest = 0;

    if (name.len + MISSPELT_EDITS < MISSPELT_NAME_MIN) /* most headers */
        return 0;
    for (size_t i = 0; best > 0 && i < sizeof(known) / sizeof(known[0]); i++) {
        unsigned edits;

        /* Most headers are none of them; the first two tests cost nothing. */
        if (name.len + MISSPELT_EDITS < known[i].len || known[i].len < MISSPELT_NAME_MIN ||
            ((name.ptr[0] ^ known[i].ptr[0]) & ~0x20) ||
            (edits = cn_edit_distance(name, known[i])) >= best)
            continue;
        best = edits;
        nearest = i;
    }
    /* A default name that was renamed means nothing, and no typing error either. */
    if (best == 0 || best > MISSPELT_EDITS || cn_sequence_name_is_default(name))
        return 0;
    return cn_fail(
        err, CN_E_BAD_REQUEST,
        "header %.*s is not known; did you mean %.*s? Nothing was done, because the step "
        "might be one of another sequence",
        CN_STR_ARG(name), CN_STR_ARG(known[nearest]));
}

int
cn_intake_read_sequence(const struct cn_header *headers, uint32_t n,
                        struct cn_sequence_headers *out, struct cn_error *err)
{
    const struct cn_header *start = NULL, *end = NULL;
    uint32_t i;
    int rc;

    *out = (struct cn_sequence_headers){.id_name = cn_sequence_name(CN_NAME_ID)};
    for (i = 0; i < n; i++) {
        enum cn_sequence_name which = cn_sequence_name_find(headers[i].name);

        rc = 0;
        if (which == CN_NAME_ID ||
            cn_str_eq_header(headers[i].name, CN_STR("inference-session-id")))
            rc = cn_intake_read_id(&headers[i], out, err);
        else if (which == CN_NAME_START)
            rc = read_flag(&headers[i], &start, &out->start, err);
        else if (which == CN_NAME_END)
            rc = read_flag(&headers[i], &end, &out->end, err);
        else
            rc = refuse_misspelt(headers[i].name, err);
        if (rc)
            return rc;
    }
    return 0;
}

int
cn_intake_read_key(const struct cn_header *headers, uint32_t n, struct cn_str *out,
                   struct cn_error *err)
{
    *out = (struct cn_str){NULL, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str value = headers[i].value;

        if (!cn_str_eq_header(headers[i].name, CN_STR("idempotency-key")))
            continue;
        if (value.len == 0 || value.len > CN_IDEMPOTENCY_KEY_MAX)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the Idempotency-Key has %zu bytes; it must have 1 to %d", value.len,
                           CN_IDEMPOTENCY_KEY_MAX);
        if (!cn_header_is_printable(value))
            return cn_fail(err, CN_E_BAD_REQUEST, "Idempotency-Key must be printable ASCII");
        if (out->len > 0 && !cn_str_eq(*out, value))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the request has two different Idempotency-Keys; send only one");
        *out = value;
    }
    return 0;
}

bool
cn_intake_names_step(struct cn_str name)
{
    return cn_str_eq_header(name, CN_STR("ts-request-sequence-step")) ||
           cn_str_eq_header(name, CN_STR("continuo-sequence-step"));
}

int
cn_intake_set_step(struct cn_row *row, uint64_t step, struct cn_error *err)
{
    if (step == 0 || step > INT64_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "sequence step %" PRIu64 "; steps are counted from 1 to 2^63 - 1", step);
    if ((row->flags & CN_ROW_NUMBERED) && row->step != step)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has two different sequence steps, %" PRIu64 " and %" PRIu64,
                       row->step, step);
    row->flags |= CN_ROW_NUMBERED;
    row->step = step;
    return 0;
}

/* Returns the number if the text consists of digits only; 0 if it does not, or if the number is too
 * large. */
static uint64_t
step_of(struct cn_str text)
{
    uint64_t step = 0;

    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || step > INT64_MAX / 10)
            return 0;
        step = step * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return step <= INT64_MAX ? step : 0;
}

int
cn_intake_read_step(const struct cn_header *headers, uint32_t n, struct cn_row *row,
                    struct cn_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str value = headers[i].value;
        int rc;

        if (!cn_intake_names_step(headers[i].name))
            continue;
        if (step_of(value) == 0)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "header %.*s is \"%.*s\"; steps are counted from 1 to 2^63 - 1",
                           CN_STR_ARG(headers[i].name), value.len > 40 ? 40 : (int)value.len,
                           value.ptr);
        if ((rc = cn_intake_set_step(row, step_of(value), err)) != 0)
            return rc;
    }
    return 0;
}
