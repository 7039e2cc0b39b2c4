/* management/workers/error_lines.c - bounds the log lines about failing steps. The queue's loop.
 *
 * A handler that fails at each step could write thousands of lines in a second. The first ones of
 * each second are written; the rest are counted, and one line says how many there were. The timer
 * runs only while lines are left out, so a model without errors costs nothing.
 */
#include "management/workers/error_lines.h"

#include <inttypes.h>

#include "core/containers/list.h"
#include "core/log/log.h"
#include "core/time/timer_wheel.h"

#define SECOND_MS 1000

static void
tell(struct cn_error_lines *lines)
{
    if (lines->left_out)
        cn_log_model(CN_LOG_WARN,
                     "event=handler_errors_left_out model=%s version=%s count=%" PRIu64 " "
                     "written=%" PRIu32,
                     lines->about->name, lines->about->version, lines->left_out, lines->written);
    lines->left_out = 0;
}

static void
on_second(struct cn_timer *timer)
{
    tell(cn_container_of(timer, struct cn_error_lines, timer));
}

void
cn_error_lines_init(struct cn_error_lines *lines, struct cn_loop *loop,
                    const struct cn_model_about *about, uint32_t per_second)
{
    *lines = (struct cn_error_lines){.loop = loop, .about = about, .per_second = per_second};
    cn_timer_init(&lines->timer, on_second);
}

void
cn_error_lines_fini(struct cn_error_lines *lines)
{
    cn_timer_cancel(&lines->timer);
    tell(lines);
}

bool
cn_error_lines_take(struct cn_error_lines *lines)
{
    uint64_t now_ms;

    if (!lines || lines->per_second == 0)
        return true;
    now_ms = cn_loop_now_ms(lines->loop);
    if (lines->written == 0 || now_ms - lines->began_ms >= SECOND_MS) {
        tell(lines);
        lines->began_ms = now_ms;
        lines->written = 0;
    }
    if (lines->written < lines->per_second) {
        lines->written++;
        return true;
    }
    if (lines->left_out++ == 0)
        cn_timer_set(cn_loop_wheel(lines->loop), &lines->timer, lines->began_ms + SECOND_MS);
    return false;
}
