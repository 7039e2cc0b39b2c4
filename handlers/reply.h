/* handlers/reply.h - fills a reply with what a handler returns, and checks it. The runtimes for Lua
 * and C share these functions, so that both have the same rules. Worker's thread. */
#ifndef CN_HANDLERS_REPLY_H
#define CN_HANDLERS_REPLY_H

#include <stdbool.h>

#include "handlers/runtime.h"

/* Removes what an earlier attempt to answer may have left: the body, and also the head if no piece
 * of the answer exists. */
void cn_reply_begin(struct cn_reply *reply);
/* These return 0, or CN_E_HANDLER_FAILED with a message that names the value and what is allowed.
 * The first three also fail when the head of the answer has left already. */
int cn_reply_put_header(struct cn_reply *reply, struct cn_str name, struct cn_str value,
                        struct cn_error *err);
int cn_reply_set_content_type(struct cn_reply *reply, struct cn_str type, struct cn_error *err);
int cn_reply_set_status(struct cn_reply *reply, long long status, struct cn_error *err);
int cn_reply_add_chunk(struct cn_reply *reply, struct cn_str bytes, struct cn_error *err);
/* Makes a piece of what the body holds. */
int cn_reply_body_to_chunk(struct cn_reply *reply, struct cn_error *err);
/* Call it after writing to the body: did everything fit? */
int cn_reply_check_body(const struct cn_reply *reply, struct cn_error *err);
/* The handler refuses the request: `status` 400 to 599, or 0 when it failed (500). The message is
 * cut to one printable line. Anything else in `status` counts as 0. */
void cn_reply_refuse(struct cn_reply *reply, long long status, struct cn_str message);

/* Returns the part named body, or data, or else the first one; empty when there is none. */
struct cn_str cn_row_body(const struct cn_row *row);

#endif
