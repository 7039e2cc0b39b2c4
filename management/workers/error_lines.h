/* management/workers/error_lines.h - how many lines about failing steps one model version writes in
 * a second.
 *
 * All workers of the version share the bound. What is left out is counted, and told when the second
 * is over. The queue's loop. */
#ifndef CN_MANAGEMENT_WORKERS_ERROR_LINES_H
#define CN_MANAGEMENT_WORKERS_ERROR_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/loop/loop.h"
#include "management/models/model_load.h"

struct cn_error_lines {
    struct cn_loop *loop;
    const struct cn_model_about *about;
    uint32_t per_second; /* 0: all are written */
    uint32_t written;    /* in the second that began at: */
    uint64_t began_ms;
    uint64_t left_out;
    struct cn_timer timer; /* armed while lines of this second are left out */
};

/* `loop` and `about` are borrowed. `per_second` 0: no bound. */
void cn_error_lines_init(struct cn_error_lines *lines, struct cn_loop *loop,
                         const struct cn_model_about *about, uint32_t per_second);
/* Logs how many lines were left out. */
void cn_error_lines_fini(struct cn_error_lines *lines);
/* May one more line be written now? If not, it is counted. NULL: there is no bound. */
bool cn_error_lines_take(struct cn_error_lines *lines);

#endif
