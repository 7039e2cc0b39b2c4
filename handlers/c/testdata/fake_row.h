/* Makes rows and items for the tests of the runtimes, without a worker. */
#ifndef CN_HANDLERS_C_TESTDATA_FAKE_ROW_H
#define CN_HANDLERS_C_TESTDATA_FAKE_ROW_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/runtime.h"

/* A request and its item. begin_fake() prepares the next step; the state and the step number
 * continue. */
struct fake {
    struct cn_part parts[3];
    struct cn_header headers[3];
    struct cn_row row;
    struct cn_item item;
    char text[1 << 16]; /* the reply, as fake_text prints it */
};

static inline void
fake_body(struct fake *fake, const char *bytes, size_t len)
{
    void *state = fake->item.state;
    uint64_t step = fake->item.step;

    memset(&fake->row, 0, sizeof(fake->row));
    memset(&fake->item, 0, sizeof(fake->item));
    fake->parts[0] = (struct cn_part){CN_STR("body"), CN_STR("text/plain"), {bytes, len}};
    fake->row.parts = fake->parts;
    fake->row.headers = fake->headers;
    fake->row.n_parts = 1;
    fake->row.flags = CN_ROW_STATEFUL;
    fake->row.sequence_id = CN_STR("seq-1");
    fake->row.request_id = CN_STR("req-1");
    fake->item.row = &fake->row;
    fake->item.deadline_ms = CN_NEVER;
    fake->item.state = state;
    fake->item.step = step;
    cn_reply_init(&fake->item.reply, 100000);
}

/* Writes the reply into fake->text and returns it: the chunks and the body, or "error
 * <code>/<status> message". */
static inline const char *
fake_text(struct fake *fake)
{
    const struct cn_reply *reply = &fake->item.reply;
    int len = 0;

    fake->text[0] = '\0';
    if (reply->error_code != 0)
        len = snprintf(fake->text, sizeof(fake->text), "%s/%u ",
                       cn_error_info(reply->error_code)->word, reply->status);
    for (uint32_t i = 0; i < reply->n_chunks; i++)
        len += snprintf(fake->text + len, sizeof(fake->text) - (size_t)len, "%.*s|",
                        CN_STR_ARG(cn_buf_str(&reply->chunks[i].body)));
    snprintf(fake->text + len, sizeof(fake->text) - (size_t)len, "%.*s",
             CN_STR_ARG(cn_buf_str(&reply->body)));
    return fake->text;
}

/* Ends the step as a worker does: after an error the state is dropped. */
static inline void
fake_end(struct cn_runtime *rt, struct fake *fake)
{
    if (fake->item.reply.error_code != 0) {
        rt->ops->state_free(rt, fake->item.state);
        fake->item.state = NULL;
    } else {
        fake->item.step++;
    }
    cn_reply_fini(&fake->item.reply);
}

/* Runs one step of one item, and returns the reply as text. */
static inline const char *
fake_step(struct cn_runtime *rt, struct fake *fake, const char *body)
{
    struct cn_item *items[1] = {&fake->item};

    fake_body(fake, body, strlen(body));
    rt->ops->run(rt, items, 1);
    fake_text(fake);
    fake_end(rt, fake);
    return fake->text;
}

/* Returns the description that the handler gives of itself. */
static inline const char *
fake_metadata(struct cn_runtime *rt, struct fake *fake)
{
    fake_body(fake, "", 0);
    fake->row.flags = CN_ROW_DESCRIBE;
    fake->row.sequence_id.len = 0;
    fake->row.n_parts = 0;
    rt->ops->metadata(rt, &fake->item);
    fake_text(fake);
    cn_reply_fini(&fake->item.reply);
    return fake->text;
}

/* Encodes the state and decodes it again, as when another worker continues. Returns 0 or the code
 * of the error. */
static inline int
fake_move(struct cn_runtime *rt, struct fake *fake, struct cn_error *err)
{
    struct cn_buf bytes;
    void *again = NULL;
    int rc;

    cn_buf_init(&bytes, 0);
    rc = rt->ops->state_encode(rt, fake->item.state, &bytes, err);
    if (rc == 0)
        rc = rt->ops->state_decode(rt, cn_buf_str(&bytes), rt->ops->state_schema(rt), &again, err);
    cn_buf_fini(&bytes);
    if (rc == 0) {
        rt->ops->state_free(rt, fake->item.state);
        fake->item.state = again;
    }
    return rc;
}

static inline void
fake_drop(struct cn_runtime *rt, struct fake *fake)
{
    rt->ops->state_free(rt, fake->item.state);
    memset(fake, 0, sizeof(*fake));
}

#endif
