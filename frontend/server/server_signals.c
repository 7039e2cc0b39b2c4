/* frontend/server/server_signals.c - the signals of the server, and the certificates and keys that
 * SIGHUP reads again. On loop 0.
 *
 * Signals are blocked in all threads and read from a signalfd: SIGTERM and SIGINT begin the stop
 * (server_stop.c), SIGHUP reopens the log files and reads certificates and keys again.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "access/certificate/tls.h"
#include "core/log/log.h"
#include "core/log/log_files.h"
#include "frontend/server/grpc_door.h"
#include "frontend/server/server_priv.h"
#include "management/management.h"

int
cn_server_block_signals(struct cn_server *server, struct cn_error *err)
{
    (void)err;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&server->signals);
    sigaddset(&server->signals, SIGTERM);
    sigaddset(&server->signals, SIGINT);
    sigaddset(&server->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &server->signals, NULL);
    return 0;
}

static bool
has_tls(const struct cn_server *server)
{
    unsigned api;

    for (api = 0; api < CN_N_APIS; api++)
        if (server->addresses[api].is_https)
            return true;
    return strncmp(server->config.grpc_inference_address, "https://", 8) == 0 ||
           strncmp(server->config.grpc_management_address, "https://", 8) == 0;
}

static void
show_certificate_end(struct cn_server *server)
{
    cn_metrics_set(cn_loop_metrics(server->loops[0]), CN_M_CERTIFICATE_END, cn_tls_ends_s());
}

int
cn_server_start_tls(struct cn_server *server, struct cn_error *err)
{
    int rc = 0;

    if (has_tls(server))
        rc = cn_tls_start(&server->config, err);
    else if (server->config.client_ca)
        rc = cn_fail(err, CN_E_CONFIG,
                     "client-ca needs an https address, because only TLS has certificates of "
                     "clients; write --inference-address https://... or remove client-ca");
    show_certificate_end(server);
    return rc;
}

void
cn_server_stop_tls(struct cn_server *server)
{
    (void)server;
    cn_tls_stop();
}

/* Handles the part of SIGHUP that concerns certificates. The files are read on loop 0, which may
 * wait for the disk: they are small, and this is rare. */
static void
reload_certificates(struct cn_server *server)
{
    char quoted[CN_ERROR_MESSAGE_MAX];
    struct cn_error err;

    if (!has_tls(server) && server->config.keys)
        return;
    if (!has_tls(server))
        cn_log(CN_LOG_INFO,
               "event=reloaded note=\"there was nothing to reload, since https is not used\"");
    else if (cn_tls_reload(&server->config, &err))
        cn_log(CN_LOG_ERROR,
               "event=reload_failed reason=%s note=\"the old certificate stays in use\"",
               cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    show_certificate_end(server);
}

/* Handles the part of SIGHUP that concerns the named keys, whose file is read on loop 0, too. */
static void
reload_keys(struct cn_server *server)
{
    char quoted[CN_ERROR_MESSAGE_MAX];
    struct cn_error err;
    uint32_t n;

    if (!server->config.keys)
        return;
    if (cn_management_reload_keys(server->management, &n, &err))
        cn_log(CN_LOG_ERROR,
               "event=keys_reload_failed keys=%u reason=%s note=\"the old keys stay in use\"", n,
               cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    else
        cn_log(CN_LOG_INFO, "event=keys_reloaded keys=%u", n);
}

/* SIGHUP: somebody has changed the keys, moved the log files or installed a new certificate. */
static void
on_hangup(struct cn_server *server)
{
    cn_log(CN_LOG_INFO, "event=logs_reopened signal=SIGHUP");
    cn_log_files_reopen();
    reload_keys(server);
    reload_certificates(server);
}

static void
on_signal(struct cn_watch *watch, uint32_t events)
{
    struct cn_server *server = cn_container_of(watch, struct cn_server, signal_watch);
    struct signalfd_siginfo info;

    (void)events;
    if (read(watch->fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGHUP)
        on_hangup(server);
    else
        cn_server_stop_begin(server, (int)info.ssi_signo);
}

int
cn_server_start_signals(struct cn_server *server, struct cn_error *err)
{
    int fd = signalfd(-1, &server->signals, SFD_CLOEXEC | SFD_NONBLOCK), rc;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot receive signals");
    server->signal_watch.fn = on_signal;
    rc = cn_loop_watch(server->loops[0], &server->signal_watch, fd, EPOLLIN, err);
    if (rc)
        close(fd);
    return rc;
}

void
cn_server_stop_signals(struct cn_server *server)
{
    int fd = server->signal_watch.fd;

    if (!server->signal_watch.generation)
        return;
    cn_loop_unwatch(server->loops[0], &server->signal_watch);
    close(fd);
}
