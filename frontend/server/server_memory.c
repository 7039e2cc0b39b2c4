/* frontend/server/server_memory.c - gives memory back that large requests have used, also when no
 * request comes any more. Loop 0. */
#include "core/containers/list.h"
#include "core/memory/large_blocks.h"
#include "frontend/server/server_priv.h"

#define EVERY_MS 5000

static void
on_time(struct cn_timer *timer)
{
    struct cn_loop *loop = cn_container_of(timer, struct cn_server, memory)->loops[0];

    cn_large_blocks_give_back();
    cn_timer_set(cn_loop_wheel(loop), timer, cn_loop_now_ms(loop) + EVERY_MS);
}

int
cn_server_start_memory(struct cn_server *server, struct cn_error *err)
{
    (void)err;
    cn_large_blocks_keep();
    cn_timer_init(&server->memory, on_time);
    on_time(&server->memory);
    return 0;
}

void
cn_server_stop_memory(struct cn_server *server)
{
    cn_timer_cancel(&server->memory);
}
