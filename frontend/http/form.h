/* frontend/http/form.h - takes form bodies apart: multipart/form-data (RFC 7578) and
 * application/x-www-form-urlencoded.
 *
 * These are pure functions over a complete body. The data of multipart parts is not copied: it
 * points into the body, which must stay in place. A body that two readers could understand in two
 * ways is refused. Any thread.
 */
#ifndef CN_FRONTEND_HTTP_FORM_H
#define CN_FRONTEND_HTTP_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "proto/message.h"

#define CN_FORM_NAME_MAX 1024    /* most bytes of a part's name, and of its content type */
#define CN_FORM_HEADERS_MAX 8192 /* most bytes of one part's headers */

/* The parts of a body, in the order in which they came. */
struct cn_parts {
    struct cn_part *list; /* in the arena */
    uint32_t n, room;
    uint32_t max; /* most parts that are allowed; set by the caller */
};

/* Adds one part. Returns CN_E_BAD_REQUEST when there are `max` parts already, or when its name or
 * type is longer than CN_FORM_NAME_MAX. */
int cn_parts_add(struct cn_parts *parts, struct cn_arena *arena, struct cn_part part,
                 struct cn_error *err);

/* Adds the parts of a body whose content type is `content_type` ("multipart/form-data;
 * boundary=..."). A part with a file name keeps its content type, without parameters, and gets
 * application/octet-stream when it has none. A part without a file name has no content type,
 * whatever its headers say: that is TorchServe's rule. CN_E_BAD_REQUEST says what is wrong. */
int cn_form_multipart(struct cn_arena *arena, struct cn_str content_type, struct cn_str body,
                      struct cn_parts *parts, struct cn_error *err);

/* Adds the `name=value` pairs of a URL-encoded body, decoded; they may have any bytes. A word
 * without a name is dropped. Returns CN_E_BAD_REQUEST for a malformed escape. */
int cn_form_urlencoded(struct cn_arena *arena, struct cn_str body, struct cn_parts *parts,
                       struct cn_error *err);

#endif
