/* frontend/http/form.h - bodies that are forms, taken apart: multipart/form-data (RFC 7578) and
 * application/x-www-form-urlencoded.
 *
 * Pure functions over a whole body. Data of multipart parts is not copied: it points into the body.
 * What could be read in two ways is refused. Any thread.
 */
#ifndef CN_FRONTEND_HTTP_FORM_H
#define CN_FRONTEND_HTTP_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "proto/message.h"

#define CN_FORM_NAME_MAX 1024    /* bytes of a part's name, and of its content type */
#define CN_FORM_HEADERS_MAX 8192 /* bytes of one part's headers */

/* Parts in the order they came. */
struct cn_parts {
    struct cn_part *list; /* in the arena */
    uint32_t n, room;
    uint32_t max; /* parts; set by the caller */
};

/* CN_E_BAD_REQUEST when `max` parts are there already, or a name or type is over
 * CN_FORM_NAME_MAX. */
int cn_parts_add(struct cn_parts *parts, struct cn_arena *arena, struct cn_part part,
                 struct cn_error *err);

/* Adds the parts of a body of `content_type` ("multipart/form-data; boundary=..."). A part with a
 * file name keeps its content type without parameters (application/octet-stream when it has none);
 * others have none, whatever they say: TorchServe's rule. CN_E_BAD_REQUEST says what is wrong. */
int cn_form_multipart(struct cn_arena *arena, struct cn_str content_type, struct cn_str body,
                      struct cn_parts *parts, struct cn_error *err);

/* Adds `name=value` pairs, decoded, with any bytes. A word without `=` is dropped, as TorchServe
 * does. CN_E_BAD_REQUEST: a broken escape. */
int cn_form_urlencoded(struct cn_arena *arena, struct cn_str body, struct cn_parts *parts,
                       struct cn_error *err);

#endif
