/* handlers/reply.h - what both runtimes check in what a handler gives back. Worker's thread. */
#ifndef CN_HANDLERS_REPLY_H
#define CN_HANDLERS_REPLY_H

#include <stdbool.h>

#include "handlers/runtime.h"

/* Forgets what an attempt to answer that failed may have left: the body, and the head as far as
 * nothing of the answer is there yet. */
void cn_reply_begin(struct cn_reply *reply);
/* All return 0 or CN_E_HANDLER_FAILED with the value and what is allowed. The first three also when
 * the head of the answer has left already. */
int cn_reply_put_header(struct cn_reply *reply, struct cn_str name, struct cn_str value,
                        struct cn_error *err);
int cn_reply_set_content_type(struct cn_reply *reply, struct cn_str type, struct cn_error *err);
int cn_reply_set_status(struct cn_reply *reply, long long status, struct cn_error *err);
int cn_reply_add_chunk(struct cn_reply *reply, struct cn_str bytes, struct cn_error *err);
/* What the body holds becomes a piece. */
int cn_reply_body_to_chunk(struct cn_reply *reply, struct cn_error *err);
/* After writing to the body: did it fit? */
int cn_reply_check_body(const struct cn_reply *reply, struct cn_error *err);
/* The handler refuses the request: `status` 400 to 599, or 0 when it failed (500). The message is
 * cut to one printable line. Anything else in `status` counts as 0. */
void cn_reply_refuse(struct cn_reply *reply, long long status, struct cn_str message);

/* The part named body, or data, or else the first; empty when there is none. */
struct cn_str cn_row_body(const struct cn_row *row);

#endif
