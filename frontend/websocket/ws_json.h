/* frontend/websocket/ws_json.h - finds values in JSON texts without making a tree of them. Any
 * thread, no state.
 *
 * The data of a step is passed to the handler as it was sent, and an answer's JSON is sent as the
 * handler wrote it. So it is enough to know that the text is JSON (RFC 8259), and where each value
 * begins and ends.
 */
#ifndef CN_FRONTEND_WEBSOCKET_WS_JSON_H
#define CN_FRONTEND_WEBSOCKET_WS_JSON_H

#include <stdbool.h>

#include "core/text/str.h"

#define CN_WS_JSON_DEPTH 64 /* of nested arrays and objects; a deeper text is refused */

/* Is the text one JSON value, with blanks around it? */
bool cn_ws_json_is_valid(struct cn_str text);

/* Goes through the members of an object. */
struct cn_ws_json {
    const char *at, *end;
    bool failed; /* the text is not an object */
    bool begun;
};
void cn_ws_json_begin(struct cn_ws_json *json, struct cn_str text);
/* Finds the next member. `name` is without its quotes, but with its escapes; `value` is the text of
 * the value. Returns false at the end, and if the text is wrong: then `failed` is set. */
bool cn_ws_json_next(struct cn_ws_json *json, struct cn_str *name, struct cn_str *value);

#endif
