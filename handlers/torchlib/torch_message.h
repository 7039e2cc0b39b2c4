/* handlers/torchlib/torch_message.h - what libtorch says when something fails. Worker's thread. */
#ifndef CN_HANDLERS_TORCHLIB_TORCH_MESSAGE_H
#define CN_HANDLERS_TORCHLIB_TORCH_MESSAGE_H

#include <stdbool.h>

#include "core/text/str.h"

/* The cause in a message of TorchScript: its last line (`last`) or its first one. Borrowed. */
struct cn_str cn_torch_cause(const char *message, bool last);

/* The whole message into the log, for whoever wrote the model; nothing where it is empty. */
void cn_torch_log(const char *event, const char *model, const char *version, const char *message);

#endif
