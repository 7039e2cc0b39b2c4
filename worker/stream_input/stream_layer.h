/* worker/stream_input/stream_layer.h - models that get windows of a stream (stream.input). Worker's
 * thread.
 *
 * This layer lies over any runtime. The worker above gives it requests with samples in any number;
 * the runtime below gets one window in each item. All windows of a request belong to one step: they
 * are committed together, or not at all, and their answers leave as one answer. Windows of
 * different sequences are run together: first the first window of each, then the second ones.
 *
 * The state of a sequence is the handler's, with the rest of its stream in front (cutter.h).
 */
#ifndef CN_WORKER_STREAM_INPUT_STREAM_LAYER_H
#define CN_WORKER_STREAM_INPUT_STREAM_LAYER_H

#include "config/model/model_config.h"
#include "config/model/model_io.h"
#include "handlers/runtime.h"

/* Lays the layer over the open runtime, whose close removes it again. `io` has the tensors as the
 * model declares them, and must outlive the runtime; NULL: it is not typed. The settings have been
 * checked (cn_stream_input_check). */
void cn_stream_layer_attach(struct cn_runtime *rt, const struct cn_load *load,
                            const struct cn_model_config *config, const struct cn_model_io *io);

#endif
