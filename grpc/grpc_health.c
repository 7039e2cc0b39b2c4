/* grpc/grpc_health.c - tells load balancers whether the server is healthy. On the call's loop.
 *
 * Healthy means the same as for /ping, for the server and for each service of the port alike. A
 * Watch call looks once a second and sends a message when the answer has changed. That is often
 * enough, because its clients are load balancers, which do not react faster.
 */
#include "grpc/grpc_health.h"

#include <grpc/health/v1/health.pb-c.h>

#include "core/errors/panic.h"
#include "core/time/timer_wheel.h"
#include "grpc/error_status.h"
#include "grpc/services.h"
#include "grpc/unary.h"
#include "management/management.h"

#define LOOK_MS 1000

enum { UNSAID = 0, SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

struct watch {
    struct cn_timer timer;
    int said; /* the status that was sent last */
};
_Static_assert(sizeof(struct watch) <= CN_RPC_HEALTH_STATE, "the state's size is too small");

/* Reads the service's name, in the call's arena. Returns NULL when the call was refused. */
static const char *
read_service(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Grpc__Health__V1__HealthCheckRequest *request =
        cn_rpc_take(call, message, &grpc__health__v1__health_check_request__descriptor);

    return request ? request->service : NULL;
}

/* Does the port have this service? The empty name stands for the server. */
static bool
is_known(struct cn_grpc_call *call, const char *service)
{
    const struct cn_grpc_method *method = cn_grpc_server_methods(cn_grpc_call_server(call));
    size_t len = strlen(service);

    if (len == 0)
        return true;
    for (; method->path; method++)
        if (strncmp(method->path + 1, service, len) == 0 && method->path[1 + len] == '/')
            return true;
    return false;
}

static int
status_now(struct cn_grpc_call *call)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);

    return cn_management_healthy(host->management) ? SERVING : NOT_SERVING;
}

/* Writes a HealthCheckResponse, which has one field, a number below 128. */
static struct cn_grpc_outgoing
response(char bytes[2], int status)
{
    bytes[0] = 1 << 3;
    bytes[1] = (char)status;
    return (struct cn_grpc_outgoing){.head = {bytes, 2}};
}

void
cn_rpc_health_check(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const char *service = read_service(call, message);
    const struct cn_grpc_status ok = {0};
    struct cn_grpc_outgoing out;
    char bytes[2];

    if (!service)
        return;
    if (!is_known(call, service)) {
        cn_rpc_fail(
            call, CN_E_NOT_FOUND,
            cn_arena_printf(cn_grpc_call_arena(call),
                            "this port has no service %.256s; server reflection lists the services",
                            service),
            0);
        return;
    }
    out = response(bytes, status_now(call));
    cn_grpc_call_finish(call, &out, &ok);
}

/* Sends a status if it differs from the one before. */
static void
say(struct cn_grpc_call *call, int status)
{
    struct watch *watch = cn_grpc_call_state(call);
    struct cn_grpc_outgoing out;
    char bytes[2];

    if (watch->said == status)
        return;
    watch->said = status;
    out = response(bytes, status);
    cn_grpc_call_send(call, &out);
}

static void
look(struct cn_timer *timer)
{
    struct watch *watch = cn_container_of(timer, struct watch, timer);
    struct cn_grpc_call *call = cn_grpc_call_of(watch);
    struct cn_loop *loop = cn_grpc_call_loop(call);

    say(call, status_now(call));
    cn_timer_set(cn_loop_wheel(loop), timer, cn_loop_now_ms(loop) + LOOK_MS);
}

void
cn_rpc_health_watch(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const char *service = read_service(call, message);
    struct watch *watch = cn_grpc_call_state(call);

    cn_timer_init(&watch->timer, look);
    if (!service)
        return;
    if (is_known(call, service))
        look(&watch->timer);
    else
        say(call, SERVICE_UNKNOWN); /* this never changes: the port's services are fixed */
}

/* The call is over or about to end: stops looking. */
void
cn_rpc_health_gone(struct cn_grpc_call *call)
{
    struct watch *watch = cn_grpc_call_state(call);

    if (watch->timer.fn) /* it may end before its message came */
        cn_timer_cancel(&watch->timer);
}

void
cn_rpc_health_drain(struct cn_grpc_call *call)
{
    cn_rpc_health_gone(call);
    say(call, NOT_SERVING);
    cn_rpc_fail(call, CN_E_DRAINING, "the server is stopping", 0);
}
