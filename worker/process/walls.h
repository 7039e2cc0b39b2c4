/* worker/process/walls.h - the walls around a worker: what the code of a model may not do.
 *
 * A wall is never taken down again, and every process that the worker starts stands behind the
 * same ones. SECURITY.md says what each of them keeps out.
 */
#ifndef CN_WORKER_PROCESS_WALLS_H
#define CN_WORKER_PROCESS_WALLS_H

#include "core/errors/error.h"
#include "proto/frame.h"

struct cn_walls {
    char standing[256]; /* names of walls, with a space between two; "": none */
    /* what could not be built and why, "NAME: REASON; NAME: REASON"; "": nothing */
    char lacking[512];
};

/* Builds the walls that `load` asks for around the calling process, before any code of the model
 * has run. Returns 0, or CN_E_LOAD_FAILED if they are required and one of them cannot be built. */
int cn_walls_raise(const struct cn_load *load, struct cn_walls *out, struct cn_error *err);

#endif
