/* frontend/websocket/ws_stream.h - one WebSocket: its connection, and the steps that it carries.
 *
 * A stream is made when its connection has become a WebSocket. It ends in two parts: first its
 * connection is gone, and then, when the last of its steps has its final answer, its memory is
 * freed. Owned by the loop of its listener.
 *
 * Files: ws_stream.c has its life, ws_io.c its socket and its times, ws_steps.c its steps and their
 * answers, ws_submit.c their jobs, ws_resume.c the hello and the answers that a client has missed.
 */
#ifndef CN_FRONTEND_WEBSOCKET_WS_STREAM_H
#define CN_FRONTEND_WEBSOCKET_WS_STREAM_H

#include <stdatomic.h>

#include "core/loop/loop.h"
#include "core/memory/arena.h"
#include "frontend/http/transport/http_conn.h"
#include "frontend/intake/intake.h"
#include "frontend/intake/unread.h"
#include "frontend/websocket/ws_frames.h"
#include "frontend/websocket/ws_messages.h"
#include "frontend/websocket/ws_site.h"

struct cn_key;
struct cn_model_queue;

enum cn_ws_phase {
    CN_WS_OPENING,  /* the server asks where the sequence is; steps wait */
    CN_WS_RESUMING, /* the answers that the client has missed are sent; steps wait */
    CN_WS_OPEN,
    CN_WS_LEAVING, /* nothing more is read; the stream is closed after the last answer */
    CN_WS_CLOSING, /* our close frame is in `out`; answers are dropped */
};

struct cn_ws_stream {
    struct cn_arena arena; /* has this struct, and the texts below */
    struct cn_ws_site *site;
    struct cn_list link; /* in the site */
    enum cn_ws_phase phase;
    enum cn_ws_form form;

    /* The connection. */
    struct cn_http_conn *conn; /* NULL: it is gone */
    int fd;
    struct cn_watch *watch; /* that of `conn`; NULL: not yet */
    bool reads, writes;     /* what is watched */
    bool pinged;
    bool is_full;   /* what the client sends is not read: its credit is used up */
    bool is_behind; /* what was read waits for another turn */
    struct cn_ws_frames frames;
    struct cn_buf pending; /* bytes that were read while no step could be taken */
    size_t out_sent;       /* bytes of frames.out that the socket has taken */
    uint64_t buffer_bytes; /* a stream with this many bytes in frames.out is held up */
    size_t held_bytes;     /* of answers that wait in their steps */
    /* what the client has not read */
    struct cn_unread unread;
    struct cn_deferred flush;
    struct cn_timer timer;
    uint64_t heard_ms;   /* loop time of the last byte of the client */
    uint64_t message_ms; /* loop time at which the present message began; 0: none */
    uint64_t stuck_ms;   /* loop time since which the socket takes nothing; 0: it does */
    uint64_t closing_ms; /* loop time of our close; 0: none */
    atomic_bool left;    /* the client has left; for the scheduler */

    /* What it carries. */
    const struct cn_key *access;  /* the named key of its client, or NULL; checked for each step */
    uint64_t certificate_ends_ms; /* wall time; CN_NEVER: the client has none. Checked, too */
    struct cn_str model, version, id; /* version: as the client named it; empty: any */
    struct cn_str request_id;
    uint32_t n_headers; /* of the handshake; handlers see them with each step */
    struct cn_header *headers;
    bool has_sequence;
    struct cn_str key; /* in the site's table; empty: it has no sequence */
    bool is_listed;
    uint64_t serial;

    struct cn_list steps;   /* submitted, in order */
    struct cn_list waiting; /* messages that were read and wait to become steps */
    uint32_t n_unanswered, n_waiting, credit, max_credit;
    uint32_t keep;       /* the highest credit so far: the answers of as many steps are kept */
    uint64_t next;       /* the number of the next step */
    uint64_t committed;  /* the number of the last committed step that is known */
    uint64_t generation; /* 0: not known */
    uint64_t expected;   /* after a failure: the number that the server expects; 0: none */
    bool failed;         /* a step has failed, and others behind it are not answered yet */
    bool start_next;     /* the next step has START */
    bool sends_lost;     /* the client resumes: `last` is set */
    uint64_t last, wanted_generation;
};

/* What the handshake has found out. All bytes are copied. */
struct cn_ws_opening {
    const struct cn_model_queue *queue;
    const struct cn_key *key; /* the named key, or NULL */
    uint64_t certificate_ends_ms;
    struct cn_str version, id, request_id;
    const struct cn_header *headers;
    uint32_t n_headers;
    enum cn_ws_form form;
    unsigned window_bits; /* 0: no compression */
    uint32_t credit;
    bool resumes;
    uint64_t last, generation; /* generation: 0: any */
};

/* Makes the record of a stream whose handshake is about to be answered. Its connection comes
 * later. */
struct cn_ws_stream *cn_ws_stream_create(struct cn_ws_site *site,
                                         const struct cn_ws_opening *opening);
/* Frees a stream that never got its connection. */
void cn_ws_stream_destroy(struct cn_ws_stream *stream);
/* The connection is a WebSocket now. `extra`: bytes that came behind the handshake. */
void cn_ws_stream_begin(struct cn_ws_stream *stream, struct cn_http_conn *conn,
                        struct cn_str extra);
/* The server stops, or goes out of use: the stream ends with the answers that are due. */
void cn_ws_stream_leave(struct cn_ws_stream *stream);
/* A newer stream has the sequence. */
void cn_ws_stream_taken_over(struct cn_ws_stream *stream);

/* --- for the stream's own files */

/* ws_stream.c. Closes the stream. `why` becomes the reason in the close frame. */
void cn_ws_close(struct cn_ws_stream *stream, enum cn_ws_close code, struct cn_str why);
/* Sends an error that concerns the stream and closes it with the code that fits. */
void cn_ws_fail(struct cn_ws_stream *stream, enum cn_ws_close code,
                const struct cn_ws_failure *failure);
/* Gives a step the headers that its handler sees. `request` is NULL for a step of the server's own.
 */
void cn_ws_give_headers(const struct cn_ws_stream *stream, const struct cn_ws_request *request,
                        struct cn_arena *arena, struct cn_row *row);
/* Sets how many steps may be unanswered: `credit`, but not more than the server allows. */
void cn_ws_set_credit(struct cn_ws_stream *stream, uint64_t credit);
/* The code of a close because of this error. */
enum cn_ws_close cn_ws_close_of(int error_code);
/* Does what the stream's phase asks for, now that a step is answered or bytes have left. May free
 * the stream if `conn` is NULL; then it returns false. */
bool cn_ws_go_on(struct cn_ws_stream *stream);
struct cn_ws_stream *cn_ws_stream_of(struct cn_ws_frames *frames);

/* ws_io.c. Begins to watch the socket. */
void cn_ws_io_begin(struct cn_ws_stream *stream, struct cn_str extra);
/* Ends the connection at once. */
void cn_ws_io_end(struct cn_ws_stream *stream);
/* Sends soon what is in `out`. */
void cn_ws_io_send_soon(struct cn_ws_stream *stream);
/* Counts what waits for the client among the unread answers of the server. */
void cn_ws_io_count_unread(struct cn_ws_stream *stream);
/* Our close has gone out: the client has a short time for its own. */
void cn_ws_io_wait_for_close(struct cn_ws_stream *stream);
/* Returns how many bytes the socket has not taken. */
static inline size_t
cn_ws_io_left(const struct cn_ws_stream *stream)
{
    return stream->frames.out.len - stream->out_sent;
}
/* Must the client read something before it gets more answers? */
static inline bool
cn_ws_io_is_full(const struct cn_ws_stream *stream)
{
    return cn_ws_io_left(stream) >= stream->buffer_bytes;
}
/* Begins to read again if the stream may. */
void cn_ws_io_read_on(struct cn_ws_stream *stream);

/* ws_steps.c */
/* The loop that owns the stream. */
struct cn_loop *cn_ws_loop(const struct cn_ws_stream *stream);

enum cn_ws_step_kind { CN_WS_STEP_RUNS, CN_WS_STEP_LOOKS, CN_WS_STEP_RECALLS };
void cn_ws_take_message(struct cn_ws_frames *frames, bool is_text, struct cn_str message);
/* Submits a step of the server's own: a look, or the recall of step `number`. */
void cn_ws_ask(struct cn_ws_stream *stream, enum cn_ws_step_kind kind, uint64_t number);
/* Sends the answers whose turn it is, and submits steps that wait. */
void cn_ws_steps_go_on(struct cn_ws_stream *stream);
/* Drops the steps that wait, and cancels the others. */
void cn_ws_steps_cancel(struct cn_ws_stream *stream);
/* May another message be read? */
static inline bool
cn_ws_steps_has_room(const struct cn_ws_stream *stream)
{
    return stream->n_unanswered + stream->n_waiting < stream->credit;
}

/* ws_resume.c */
void cn_ws_hello_begin(struct cn_ws_stream *stream);
/* The look has its answer. */
void cn_ws_hello_found(struct cn_ws_stream *stream, const struct cn_answer *answer);
/* The recall of step `number` has failed. */
void cn_ws_recall_failed(struct cn_ws_stream *stream, uint64_t number,
                         const struct cn_answer *answer, uint32_t retry_after_s);

#endif
