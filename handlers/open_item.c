/* handlers/open_item.c - deferred items. Worker's thread.
 *
 * There are two replies: that of the worker's item, which exists during run(), and that of the open
 * item, which the handler fills at any time. cn_open_item_take moves everything from the second to
 * the first when the item is run. The head of an answer (status, content type, headers) may come
 * with either of them, but leaves only once, so each reply must know whether the other has sent it.
 */
#include "handlers/open_item.h"

#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"

void
cn_open_item_init(struct cn_open_item *open, struct cn_runtime *rt, const struct cn_item *item)
{
    *open = (struct cn_open_item){.item = *item, .rt = rt};
    cn_reply_init(&open->item.reply, item->reply.body.max_bytes);
    open->item.reply.head_out = item->reply.head_out;
    open->item.resume = NULL;
}

void
cn_open_item_fini(struct cn_open_item *open)
{
    cn_reply_fini(&open->item.reply);
}

void
cn_open_item_wake(struct cn_open_item *open)
{
    if (open->rt && open->rt->wake)
        open->rt->wake(open->rt->worker, open->item.row->job_id);
}

static void
swap_bufs(struct cn_buf *a, struct cn_buf *b)
{
    struct cn_buf old = *a;

    *a = *b;
    *b = old;
}

/* Moves the head of the answer, as long as it has not left: that is so while `to` has no piece. */
static void
move_head(struct cn_reply *from, struct cn_reply *to)
{
    if (to->head_out || from->head_out)
        return;
    if (from->status)
        to->status = from->status;
    if (to->content_type.len == 0)
        swap_bufs(&from->content_type, &to->content_type);
    if (from->n_headers && to->n_headers == to->n_given) {
        cn_buf_append_str(&to->headers, cn_buf_str(&from->headers));
        to->n_headers += from->n_headers;
        cn_buf_reset(&from->headers);
        from->n_headers = 0;
    }
}

static void
move_chunks(struct cn_reply *from, struct cn_reply *to)
{
    struct cn_chunk *all = from->chunks;
    uint32_t n = to->n_chunks + from->n_chunks;

    if (from->n_chunks == 0)
        return;
    if (to->n_chunks) { /* only in the call that deferred the item; it adds no more pieces */
        all = cn_alloc(n * sizeof(*all));
        memcpy(all, to->chunks, to->n_chunks * sizeof(*all));
        memcpy(all + to->n_chunks, from->chunks, from->n_chunks * sizeof(*all));
        cn_free(to->chunks);
        cn_free(from->chunks);
    }
    to->chunks = all;
    to->n_chunks = n;
    to->chunk_bytes += from->chunk_bytes;
    from->chunks = NULL;
    from->n_chunks = 0;
    from->chunk_bytes = 0;
}

void
cn_open_item_take(struct cn_open_item *open, struct cn_item *item)
{
    struct cn_reply *from = &open->item.reply, *to = &item->reply;

    if (from->error_code) {
        cn_reply_fail(to, from->error_code, "%.*s", CN_STR_ARG(cn_buf_str(&from->body)));
        to->status = from->status;
        return;
    }
    move_head(from, to);
    move_chunks(from, to);
    to->more = !open->over;
    to->rest_ms = open->over ? 0 : CN_NEVER;
    if (open->over) {
        swap_bufs(&from->body, &to->body);
        to->end_sequence = to->end_sequence || from->end_sequence;
        to->stop_streams = to->stop_streams || from->stop_streams;
    }
    /* The head and the pieces in `to` leave with this batch. */
    from->head_out =
        to->head_out || to->n_chunks || to->status || to->content_type.len || to->n_headers;
}
