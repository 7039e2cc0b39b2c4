/* handlers/torchlib/torch_message.h - the messages of libtorch when something fails. Worker's
 * thread. */
#ifndef CN_HANDLERS_TORCHLIB_TORCH_MESSAGE_H
#define CN_HANDLERS_TORCHLIB_TORCH_MESSAGE_H

#include <stdbool.h>

#include "core/text/str.h"

/* Returns the cause in a message of TorchScript, which points into the message. If arguments do not
 * fit a method, it is the line that says so; otherwise the last line (`last`) or the first one. */
struct cn_str cn_torch_cause(const char *message, bool last);

/* Logs the message, or its last 3000 bytes, for the author of the model. Logs nothing if it is
 * empty. */
void cn_torch_log(const char *event, const char *model, const char *version, const char *message);

#endif
