/* handlers/state_text.h - a stored state as JSON, for people who look at a sequence. Worker's
 * thread. */
#ifndef CN_HANDLERS_STATE_TEXT_H
#define CN_HANDLERS_STATE_TEXT_H

#include "core/memory/buf.h"
#include "core/text/str.h"

/* Appends the state as one JSON value. `runtime` is its handler's: "lua", "c", "torch", "onnx" or
 * "python". Bytes that are not text, and arrays, are shown by their size and their beginning; lists
 * and maps are cut after 200 members. Bytes that are not a state of that runtime are shown as
 * bytes. */
void cn_state_text(const char *runtime, struct cn_str bytes, struct cn_buf *out);

#endif
