/* scheduler/workers/worker_frames.c - hands the frames of a worker to those whom they concern. On
 * the model queue's loop.
 *
 * Answers and what belongs to them go to the model queue (struct cn_worker_frame_ops), if the link
 * is attached to one. Frames about the process (LOADED, PROGRESS, FORKED, STATS) go to the link's
 * owner. A frame that cannot come at this moment is an error, and the link is lost.
 */
#include "core/memory/arena.h"
#include "core/memory/mem.h"
#include "scheduler/workers/worker_link_priv.h"

static int
give_answer(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_answer answer;
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = cn_frame_get_answer(frame, &arena, &answer, err);
    if (rc == 0)
        rc = cn_worker_link_copy_body(link, &answer, err);
    if (rc == 0 && link->queue)
        rc = link->frame_ops->on_answer(link, &answer, err);
    else if (rc == 0 && link->credit_phase == CN_CREDIT_UNATTACHED)
        rc = cn_fail(err, CN_E_PROTOCOL, "ANSWER before any row was sent");
    cn_free(link->copied_body);
    link->copied_body = NULL;
    cn_arena_fini(&arena);
    return rc;
}

static int
give_closed(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_closed closed;
    int rc = cn_frame_get_closed(frame, &closed, err);

    return rc == 0 && link->queue ? link->frame_ops->on_closed(link, &closed, err) : rc;
}

static int
give_result(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_query_result result;
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = cn_frame_get_result(frame, &arena, &result, err);
    if (rc == 0 && link->queue)
        rc = link->frame_ops->on_result(link, &result, err);
    cn_arena_fini(&arena);
    return rc;
}

static int
give_loaded(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_loaded loaded;
    int rc = cn_frame_get_loaded(frame, &loaded, err);

    if (rc < 0)
        return rc;
    if (link->loaded)
        return cn_fail(err, CN_E_PROTOCOL, "second LOADED frame");
    link->loaded = true;
    link->ops->on_loaded(link->owner, &loaded);
    return 0;
}

static int
give_progress(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_progress progress;
    int rc = cn_frame_get_progress(frame, &progress, err);

    if (rc == 0 && link->loaded)
        return cn_fail(err, CN_E_PROTOCOL, "PROGRESS after LOADED");
    if (rc == 0 && link->ops->on_progress)
        link->ops->on_progress(link->owner, &progress);
    return rc;
}

static int
give_forked(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_forked forked;
    int rc = cn_frame_get_forked(frame, &forked, err);

    if (rc < 0)
        return rc;
    if (link->n_forks == 0 || !link->ops->on_forked)
        return cn_fail(err, CN_E_PROTOCOL, "FORKED without a FORK");
    link->n_forks--;
    link->ops->on_forked(link->owner, &forked);
    return 0;
}

static int
give_stats(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_worker_stats stats;
    int rc = cn_frame_get_stats(frame, &stats, err);

    if (rc == 0 && link->body_memory)
        cn_body_memory_trim(link->body_memory);
    /* A worker that only streams to slow clients may have no answer to give for a long time. */
    if (rc == 0 && stats.streams > 0)
        link->progress_ms = cn_loop_now_ms(link->loop);
    if (rc == 0 && link->queue)
        link->frame_ops->on_stats(link, &stats);
    if (rc == 0 && link->ops->on_stats)
        link->ops->on_stats(link->owner, &stats);
    return rc;
}

static int
give_report(struct cn_worker_link *link, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_report report;
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = cn_frame_get_report(frame, &arena, &report, err);
    if (rc == 0 && link->queue)
        link->frame_ops->on_report(link, &report);
    cn_arena_fini(&arena);
    return rc;
}

int
cn_worker_link_give_frame(struct cn_worker_link *link, const struct cn_frame *frame,
                          struct cn_error *err)
{
    switch (frame->type) {
    case CN_FRAME_ANSWER:
        return give_answer(link, frame, err);
    case CN_FRAME_CLOSED:
        return give_closed(link, frame, err);
    case CN_FRAME_RESULT:
        return give_result(link, frame, err);
    case CN_FRAME_LOADED:
        return give_loaded(link, frame, err);
    case CN_FRAME_STATS:
        return give_stats(link, frame, err);
    case CN_FRAME_REPORT:
        return give_report(link, frame, err);
    case CN_FRAME_PROGRESS:
        return give_progress(link, frame, err);
    case CN_FRAME_FORKED:
        return give_forked(link, frame, err);
    default:
        return cn_fail(err, CN_E_PROTOCOL, "frame of type %d, which only the server sends",
                       (int)frame->type);
    }
}
