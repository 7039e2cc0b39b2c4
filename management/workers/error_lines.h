/* management/workers/error_lines.h - how many lines about failing steps one model version writes in
 * a second.
 *
 * All workers of the version share the bound. Lines beyond it are counted, and one line with their
 * number is logged when the second is over. On the model queue's loop. */
#ifndef CN_MANAGEMENT_WORKERS_ERROR_LINES_H
#define CN_MANAGEMENT_WORKERS_ERROR_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/loop/loop.h"
#include "management/models/model_load.h"

struct cn_error_lines {
    struct cn_loop *loop;
    const struct cn_model_about *about;
    uint32_t per_second; /* 0: all lines are written */
    uint32_t written;    /* lines in the second that began at began_ms */
    uint64_t began_ms;
    uint64_t left_out;
    struct cn_timer timer; /* armed while lines of this second are left out */
};

/* `loop` and `about` are borrowed. If `per_second` is 0, there is no bound. */
void cn_error_lines_init(struct cn_error_lines *lines, struct cn_loop *loop,
                         const struct cn_model_about *about, uint32_t per_second);
/* Logs how many lines were left out in the second that has not ended yet. */
void cn_error_lines_fini(struct cn_error_lines *lines);
/* May one more line be written now? If not, it is counted as left out. NULL for `lines` means that
 * there is no bound. */
bool cn_error_lines_take(struct cn_error_lines *lines);

#endif
