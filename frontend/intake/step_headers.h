/* frontend/intake/step_headers.h - what the headers of a request say about its sequence and its
 * step. gRPC's metadata are headers, too. Any thread, no state.
 */
#ifndef CN_FRONTEND_INTAKE_STEP_HEADERS_H
#define CN_FRONTEND_INTAKE_STEP_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "frontend/intake/sequence_names.h"
#include "proto/message.h"

struct cn_sequence_headers {
    struct cn_str id;      /* empty: none was sent */
    struct cn_str id_name; /* as the client spelt it; the configured one when none was sent */
    bool start, end;
};

/* Reads ts-request-sequence-id, _start and _end (or as they are called: sequence_names.h), in any
 * case and with - for _, and Continuo-Sequence and Inference-Session-Id, which mean the same as the
 * first. CN_E_BAD_REQUEST: an id over CN_SEQUENCE_ID_MAX bytes or not printable UTF-8, two
 * different ids, or a flag that is neither true nor false. An empty id
 * counts as absent. */
int cn_intake_read_sequence(const struct cn_header *headers, uint32_t n,
                            struct cn_sequence_headers *out, struct cn_error *err);

/* Reads Idempotency-Key; `out` is empty without one. CN_E_BAD_REQUEST: it is not
 * printable ASCII, has not 1 to CN_IDEMPOTENCY_KEY_MAX bytes, or there are two different ones. */
int cn_intake_read_key(const struct cn_header *headers, uint32_t n, struct cn_str *out,
                       struct cn_error *err);

/* CN_E_BAD_REQUEST, with both names and both ids in the message. */
int cn_intake_refuse_two_ids(const struct cn_sequence_headers *first,
                             const struct cn_header *second, struct cn_error *err);

/* Is it the header with a step's number, ts-request-sequence-step or Continuo-Sequence-Step, in any
 * case and with _ for -? */
bool cn_intake_names_step(struct cn_str name);
/* Reads it into row->step, with CN_ROW_NUMBERED; nothing changes without one. CN_E_BAD_REQUEST: it
 * is not a number from 1 to INT64_MAX, or differs from the one that the row has. */
int cn_intake_read_step(const struct cn_header *headers, uint32_t n, struct cn_row *row,
                        struct cn_error *err);
/* Sets a number that came another way than by header; the same checks are made. */
int cn_intake_set_step(struct cn_row *row, uint64_t step, struct cn_error *err);

/* Reads one more header with an id; the same rules apply. */
int cn_intake_read_id(const struct cn_header *header, struct cn_sequence_headers *out,
                      struct cn_error *err);

#endif
