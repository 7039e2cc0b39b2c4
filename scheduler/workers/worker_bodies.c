/* scheduler/workers/worker_bodies.c - large bodies that pass through memory which the server shares
 * with a worker. On the model queue's loop.
 *
 * The memory is made when it is first useful, so a model with small bodies has none. Its descriptor
 * goes in a message of its own, which must not come into the middle of a frame: if something is
 * still to be sent, the next row tries again. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "scheduler/workers/worker_link_priv.h"

static bool
has_large_part(const struct cn_row *row)
{
    for (uint32_t i = 0; i < row->n_parts; i++)
        if (cn_body_memory_pays(row->parts[i].data.len))
            return true;
    return false;
}

/* Returns false if the socket does not take it. One that is full takes it later. */
static bool
send_memory(struct cn_worker_link *link, uint64_t half_bytes, int fd)
{
    struct cn_buf frame;
    bool sent;

    cn_buf_init(&frame, 0);
    cn_frame_put_memory(&frame, &(struct cn_memory_order){half_bytes});
    sent = cn_worker_link_send_fds(link, &frame, &fd, 1);
    if (!sent && (errno == EAGAIN || errno == EWOULDBLOCK))
        link->body_memory_tried = false;
    cn_buf_fini(&frame);
    return sent;
}

void
cn_worker_link_share(struct cn_worker_link *link, const struct cn_row *row)
{
    struct cn_body_memory *body_memory;
    struct cn_error err;
    int fd;

    if (link->body_memory_tried || link->terms.body_memory_bytes == 0 ||
        !(link->bodies_are_large || has_large_part(row)))
        return;
    if (link->frame_rows > 0 || cn_worker_link_is_sending(link) || !cn_worker_link_usable(link))
        return;
    link->body_memory_tried = true;
    if (cn_body_memory_create(link->terms.body_memory_bytes, &body_memory, &fd, &err) != 0) {
        cn_log(CN_LOG_WARN, "event=no_body_memory worker=%u reason=\"%s\"", link->index,
               err.message);
        return;
    }
    /* That a worker takes nothing more is noticed elsewhere. */
    if (send_memory(link, link->terms.body_memory_bytes, fd))
        link->body_memory = body_memory;
    else
        cn_body_memory_free(body_memory);
    close(fd);
}

int
cn_worker_link_copy_body(struct cn_worker_link *link, struct cn_answer *answer,
                         struct cn_error *err)
{
    const struct cn_str body = answer->body;

    if (!cn_body_memory_has(link->body_memory, body.ptr)) {
        link->bodies_are_large = link->bodies_are_large || cn_body_memory_pays(body.len);
        return 0;
    }
    if (body.len > link->max_frame_bytes)
        return cn_fail(err, CN_E_PROTOCOL, "body of %zu bytes exceeds the limit of %llu bytes",
                       body.len, (unsigned long long)link->max_frame_bytes);
    link->copied_body = cn_try_alloc(body.len ? body.len : 1);
    if (!link->copied_body)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for an answer of %zu bytes",
                       body.len);
    memcpy(link->copied_body, body.ptr, body.len);
    cn_body_memory_release(link->body_memory, body.ptr);
    answer->body.ptr = link->copied_body;
    return 0;
}
