/* cn_fuzz: core frontend */
/* tests/fuzz/websocket_fuzz.c - any bytes as the frames of a WebSocket's client, and as the
 * messages in them.
 *
 * Input: a byte that chooses the form, whether compression was agreed on, and how the bytes are
 * cut; then the bytes.
 */
#include <stdint.h>

#include "core/memory/arena.h"
#include "frontend/websocket/ws_deflate.h"
#include "frontend/websocket/ws_frames.h"
#include "frontend/websocket/ws_messages.h"
#include "tests/fuzz/fuzz.h"

static enum cn_ws_form form;

static void
on_message(struct cn_ws_frames *frames, bool is_text, struct cn_str message)
{
    struct cn_ws_request request;
    struct cn_arena arena;
    struct cn_error err;

    cn_arena_init(&arena);
    if (cn_ws_read(form, is_text, message, &arena, &request, &err) == 0)
        cn_ws_frames_send(frames, is_text, request.has_body ? request.body : message);
    cn_arena_fini(&arena);
    frames->is_paused = message.len % 3 == 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_ws_deflate *deflate = cn_ws_deflate_create();
    struct cn_ws_frames frames = {.max_bytes = 1 << 16, .window_bits = 15, .compress_bytes = 10};
    size_t step;

    if (size == 0) {
        cn_ws_deflate_destroy(deflate);
        return 0;
    }
    form = (enum cn_ws_form)(data[0] % 3);
    frames.deflate = data[0] & 4 ? deflate : NULL;
    step = data[0] & 8 ? 1 + (size_t)(data[0] >> 4) : size;
    if (!cn_ws_frames_init(&frames, on_message))
        return 0;
    for (size_t at = 1; at < size && cn_ws_frames_wants_bytes(&frames); at += step) {
        const size_t len = step < size - at ? step : size - at;
        struct cn_str rest =
            cn_ws_frames_take(&frames, (struct cn_str){(const char *)data + at, len});

        while (rest.len && cn_ws_frames_wants_bytes(&frames))
            rest = cn_ws_frames_take(&frames, rest);
        if (data[0] & 16)
            cn_ws_frames_rest(&frames);
    }
    cn_ws_frames_fini(&frames);
    cn_ws_deflate_destroy(deflate);
    return 0;
}
