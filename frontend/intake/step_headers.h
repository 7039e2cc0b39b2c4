/* frontend/intake/step_headers.h - reads what the headers of a request say about its sequence and
 * its step. gRPC's metadata are headers, too. Any thread, no state. */
#ifndef CN_FRONTEND_INTAKE_STEP_HEADERS_H
#define CN_FRONTEND_INTAKE_STEP_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "frontend/intake/sequence_names.h"
#include "proto/message.h"

struct cn_sequence_headers {
    struct cn_str id;      /* empty: the request has none */
    struct cn_str id_name; /* in the client's spelling; the configured name if there is none */
    bool start, end;
};

/* Reads ts-request-sequence-id, -start and -end (or the names that sequence_names.h has for them),
 * in any case and with - or _. Continuo-Sequence, Continuo-Sequence-Id and Inference-Session-Id
 * mean the same as the first. CN_E_BAD_REQUEST: an id is longer than CN_SEQUENCE_ID_MAX bytes or is
 * not printable UTF-8, there are two different ids, a flag is neither true nor false, or a header
 * has the name of one of these with a typing error. An empty id counts as absent. */
int cn_intake_read_sequence(const struct cn_header *headers, uint32_t n,
                            struct cn_sequence_headers *out, struct cn_error *err);

/* Reads Idempotency-Key; `out` is empty without one. Returns CN_E_BAD_REQUEST if the key is not
 * printable ASCII, does not have 1 to CN_IDEMPOTENCY_KEY_MAX bytes, or if there are two different
 * ones. */
int cn_intake_read_key(const struct cn_header *headers, uint32_t n, struct cn_str *out,
                       struct cn_error *err);

/* Returns CN_E_BAD_REQUEST with both names and both ids in the message. */
int cn_intake_refuse_two_ids(const struct cn_sequence_headers *first,
                             const struct cn_header *second, struct cn_error *err);

/* Returns true for a header with a step's number, ts-request-sequence-step or
 * Continuo-Sequence-Step, in any case and with _ or -. */
bool cn_intake_names_step(struct cn_str name);
/* Reads the number into row->step and sets CN_ROW_NUMBERED; changes nothing without such a header.
 * Returns CN_E_BAD_REQUEST if it is not a number from 1 to INT64_MAX, or differs from the number
 * that the row has. */
int cn_intake_read_step(const struct cn_header *headers, uint32_t n, struct cn_row *row,
                        struct cn_error *err);
/* Sets a number that did not come in a header, with the same checks. */
int cn_intake_set_step(struct cn_row *row, uint64_t step, struct cn_error *err);

/* Reads one more header with an id, by the same rules. */
int cn_intake_read_id(const struct cn_header *header, struct cn_sequence_headers *out,
                      struct cn_error *err);

#endif
