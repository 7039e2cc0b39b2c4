/* proto/frame_worker.c - the frames of a worker's life: LOAD, LOADED, PROGRESS, FORK, FORKED,
 * STATS, STOP. Any thread.
 *
 * A worker gets LOAD first. While it loads it may send PROGRESS, and it ends with LOADED. From then
 * on it sends STATS about once a second when something has changed. A zygote goes the same way up
 * to LOADED; then it gets a FORK for each worker that the server wants and answers with FORKED. The
 * new worker has a socket of its own, on which its life begins again with LOAD.
 */
#include <string.h>

#include "proto/frame_priv.h"

/* LOAD: the fields of CN_LOAD_FIELDS in their order, texts as str32, numbers as u64. Struct,
 * encoder and decoder come from that one table, so that they cannot disagree. */
void
cn_frame_put_load(struct cn_buf *buf, const struct cn_load *load)
{
    size_t begun = frame_begin(buf, CN_FRAME_LOAD, 0);

#define PUT_STR(name) cn_write_str32(buf, cn_str_from(load->name));
#define PUT_NUM(name) cn_write_u64(buf, load->name);
    CN_LOAD_FIELDS(PUT_STR, PUT_NUM)
#undef PUT_STR
#undef PUT_NUM
    frame_end(buf, begun);
}

/* Reads a text and copies it to the arena, NUL-terminated. A NUL inside the text makes the frame
 * malformed: a path that is cut there would name another file. */
static const char *
read_text(struct cn_reader *reader, struct cn_arena *arena)
{
    struct cn_str text = cn_read_str32(reader);

    if (text.len && memchr(text.ptr, '\0', text.len)) {
        reader->bad = true;
        text.len = 0;
    }
    return cn_arena_strndup(arena, text.ptr, text.len);
}

int
cn_frame_get_load(const struct cn_frame *frame, struct cn_arena *arena, struct cn_load *out,
                  struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
#define GET_STR(name) out->name = read_text(&reader, arena);
#define GET_NUM(name) out->name = cn_read_u64(&reader);
    CN_LOAD_FIELDS(GET_STR, GET_NUM)
#undef GET_STR
#undef GET_NUM
    return reader_done(&reader) ? 0 : bad_payload(err, "LOAD");
}

/* LOADED: u32 error code (two's complement), str32 message, str32 device, str32 warning, str32
 * walls, str32 lacking. */
void
cn_frame_put_loaded(struct cn_buf *buf, const struct cn_loaded *loaded)
{
    size_t begun = frame_begin(buf, CN_FRAME_LOADED, 0);

    cn_write_u32(buf, (uint32_t)loaded->error_code);
    cn_write_str32(buf, loaded->message);
    cn_write_str32(buf, loaded->device);
    cn_write_str32(buf, loaded->warning);
    cn_write_str32(buf, loaded->walls);
    cn_write_str32(buf, loaded->lacking);
    frame_end(buf, begun);
}

int
cn_frame_get_loaded(const struct cn_frame *frame, struct cn_loaded *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->error_code = (int32_t)cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    out->device = cn_read_str32(&reader);
    out->warning = cn_read_str32(&reader);
    out->walls = cn_read_str32(&reader);
    out->lacking = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "LOADED");
}

/* PROGRESS: u32 done, u32 total, str32 what. */
void
cn_frame_put_progress(struct cn_buf *buf, const struct cn_progress *progress)
{
    size_t begun = frame_begin(buf, CN_FRAME_PROGRESS, 0);

    cn_write_u32(buf, progress->done);
    cn_write_u32(buf, progress->total);
    cn_write_str32(buf, progress->what);
    frame_end(buf, begun);
}

int
cn_frame_get_progress(const struct cn_frame *frame, struct cn_progress *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->done = cn_read_u32(&reader);
    out->total = cn_read_u32(&reader);
    out->what = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "PROGRESS");
}

/* FORK: str32 label. */
void
cn_frame_put_fork(struct cn_buf *buf, struct cn_str label)
{
    size_t begun = frame_begin(buf, CN_FRAME_FORK, 0);

    cn_write_str32(buf, label);
    frame_end(buf, begun);
}

int
cn_frame_get_fork(const struct cn_frame *frame, struct cn_str *label, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    *label = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "FORK");
}

/* MEMORY: u64 bytes of a half. */
void
cn_frame_put_memory(struct cn_buf *buf, const struct cn_memory_order *order)
{
    size_t begun = frame_begin(buf, CN_FRAME_MEMORY, 0);

    cn_write_u64(buf, order->half_bytes);
    frame_end(buf, begun);
}

int
cn_frame_get_memory(const struct cn_frame *frame, struct cn_memory_order *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->half_bytes = cn_read_u64(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "MEMORY");
}

/* FORKED: u32 pid, str32 message. */
void
cn_frame_put_forked(struct cn_buf *buf, const struct cn_forked *forked)
{
    size_t begun = frame_begin(buf, CN_FRAME_FORKED, 0);

    cn_write_u32(buf, forked->pid);
    cn_write_str32(buf, forked->message);
    frame_end(buf, begun);
}

int
cn_frame_get_forked(const struct cn_frame *frame, struct cn_forked *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->pid = cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    if (!reader_done(&reader) || out->pid > INT32_MAX)
        return bad_payload(err, "FORKED");
    return 0;
}

/* For a shared store: u8 1, u8 connected, u64 since, u64 conflicts, u64 reloads, the u64 of both
 * histograms, the last error as str32. For another store: u8 0. */
static void
put_store(struct cn_buf *buf, const struct cn_store_stats *store)
{
    cn_write_u8(buf, store->shared);
    if (!store->shared)
        return;
    cn_write_u8(buf, store->connected);
    cn_write_u64(buf, store->since_wall_ms);
    cn_write_u64(buf, store->conflicts);
    cn_write_u64(buf, store->reloads);
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++)
        cn_write_u64(buf, store->trips[i]);
    for (unsigned i = 0; i < CN_ROWS_VALUES; i++)
        cn_write_u64(buf, store->commits[i]);
    cn_write_str32(buf, cn_str_from(store->last_error));
}

/* Returns false if the bytes are wrong. */
static bool
get_store(struct cn_reader *reader, struct cn_store_stats *out)
{
    const uint8_t shared = cn_read_u8(reader);
    uint8_t connected;
    struct cn_str error;

    *out = (struct cn_store_stats){.shared = shared == 1};
    if (shared != 1)
        return shared == 0;
    connected = cn_read_u8(reader);
    out->connected = connected == 1;
    out->since_wall_ms = cn_read_u64(reader);
    out->conflicts = cn_read_u64(reader);
    out->reloads = cn_read_u64(reader);
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++)
        out->trips[i] = cn_read_u64(reader);
    for (unsigned i = 0; i < CN_ROWS_VALUES; i++)
        out->commits[i] = cn_read_u64(reader);
    error = cn_read_str32(reader);
    if (reader->bad || connected > 1 || error.len >= sizeof(out->last_error) ||
        (error.len && memchr(error.ptr, '\0', error.len)))
        return false;
    if (error.len)
        memcpy(out->last_error, error.ptr, error.len);
    return true;
}

/* STATS: nine u64 in the order of struct cn_worker_stats, and the store. */
void
cn_frame_put_stats(struct cn_buf *buf, const struct cn_worker_stats *stats)
{
    size_t begun = frame_begin(buf, CN_FRAME_STATS, 0);

    cn_write_u64(buf, stats->rss_bytes);
    cn_write_u64(buf, stats->cached_sequences);
    cn_write_u64(buf, stats->cached_bytes);
    cn_write_u64(buf, stats->stored_sequences);
    cn_write_u64(buf, stats->stored_bytes);
    cn_write_u64(buf, stats->batches);
    cn_write_u64(buf, stats->rows);
    cn_write_u64(buf, stats->streams);
    cn_write_u64(buf, stats->busy_us);
    put_store(buf, &stats->store);
    frame_end(buf, begun);
}

int
cn_frame_get_stats(const struct cn_frame *frame, struct cn_worker_stats *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->rss_bytes = cn_read_u64(&reader);
    out->cached_sequences = cn_read_u64(&reader);
    out->cached_bytes = cn_read_u64(&reader);
    out->stored_sequences = cn_read_u64(&reader);
    out->stored_bytes = cn_read_u64(&reader);
    out->batches = cn_read_u64(&reader);
    out->rows = cn_read_u64(&reader);
    out->streams = cn_read_u64(&reader);
    out->busy_us = cn_read_u64(&reader);
    return get_store(&reader, &out->store) && reader_done(&reader) ? 0 : bad_payload(err, "STATS");
}

/* STOP: empty. */
void
cn_frame_put_stop(struct cn_buf *buf)
{
    frame_end(buf, frame_begin(buf, CN_FRAME_STOP, 0));
}
