/* management/api/json/slow_steps_json.c - the list of slow steps as JSON. Loop 0.
 *
 * The steps are copied out of the ring first, because sorting and writing take longer than a loop
 * that ends a slow step should wait. */
#include "management/api/json/slow_steps_json.h"

#include <stdlib.h>
#include <string.h>

#include "config/server/server_config.h"
#include "core/time/clock.h"
#include "management/api/json/json_text.h"
#include "tracing/slow_steps.h"

static uint64_t
duration_of(const struct cn_slow_step *step)
{
    return step->times.done_us - step->times.arrived_us;
}

static int
slower_first(const void *a, const void *b)
{
    const uint64_t of_a = duration_of(a), of_b = duration_of(b);

    return of_a < of_b ? 1 : of_a > of_b ? -1 : 0;
}

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static void
put_ms(json_t *object, const char *key, uint64_t us)
{
    put(object, key, json_real((double)us / 1000));
}

static json_t *
show(const struct cn_slow_step *step)
{
    const struct cn_step_phases phases = cn_step_phases(&step->times);
    json_t *out = json_object();
    char ended[25];

    cn_wall_format(step->ended_wall_ms, ended);
    put(out, "number", json_integer((json_int_t)step->serial));
    put(out, "ended", json_string(ended));
    put(out, "modelName", cn_json_text(step->model));
    put(out, "modelVersion", cn_json_text(step->version));
    put(out, "sequence", step->sequence[0] ? cn_json_text(step->sequence) : json_null());
    put(out, "step", step->step ? json_integer((json_int_t)step->step) : json_null());
    put(out, "requestId", cn_json_text(step->request_id));
    put_ms(out, "totalMSec", phases.total_us);
    put_ms(out, "queueMSec", phases.queue_us);
    put_ms(out, "workerMSec", phases.worker_us);
    put_ms(out, "handlerMSec", phases.handler_us);
    put_ms(out, "commitMSec", phases.commit_us);
    put(out, "handlerCalls", json_integer(step->times.n_calls));
    put(out, "sent", json_integer(step->times.n_sent));
    put(out, "error",
        step->error_code ? json_string(cn_error_info(step->error_code)->word) : json_null());
    return out;
}

json_t *
cn_slow_steps_json(const struct cn_server_config *config, const struct cn_slow_steps_wish *wish)
{
    json_t *out = json_object(), *list = json_array();
    struct cn_slow_step *steps;
    struct cn_arena arena;
    uint64_t seen;
    uint32_t n;

    cn_arena_init(&arena);
    n = cn_slow_steps_read(&arena, &steps, &seen);
    if (!wish->by_time)
        qsort(steps, n, sizeof(*steps), slower_first);
    for (uint32_t i = 0; i < n && json_array_size(list) < wish->limit; i++)
        if (!wish->model || strcmp(wish->model, steps[i].model) == 0)
            json_array_append_new(list, show(&steps[i]));
    cn_arena_fini(&arena);
    put(out, "thresholdMSec", json_integer(config->slow_step_ms));
    put(out, "kept", json_integer(config->slow_steps_kept));
    put(out, "seen", json_integer((json_int_t)seen));
    put(out, "steps", list);
    return out;
}
