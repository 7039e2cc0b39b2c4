/* doctor/doctor_metrics.c - the rules of continuo-ctl doctor about the whole server, which look at
 * its metrics: connections, the certificate, and the shares of steps, requests and turns that went
 * wrong. */
#include <inttypes.h>

#include "doctor/doctor_priv.h"

/* Shares above which a figure becomes a finding. */
#define REFUSED_PERCENT 1
#define FAILED_PERCENT 1
#define SLOW_TURNS_PERCENT 10
#define SLOW_TURNS_MIN 100 /* starting up alone causes some */
/* A certificate that expires within this number of days becomes a finding. */
#define LAST_DAYS 14
#define DAY_S 86400u

static void
connections(struct cn_ctl_diagnosis *diagnosis, uint64_t open, uint64_t max)
{
    struct cn_ctl_finding *finding;

    if (max == 0 || cn_percent(open, max) < NEARLY_FULL_PERCENT)
        return;
    finding = cn_ctl_diagnosis_add(
        diagnosis, false,
        SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " HTTP connections are open", open, max));
    finding->why = "beyond the limit new clients wait or get status 503; an idle connection stays "
                   "open for keepalive-timeout";
    finding->advice = "let clients open fewer connections, lower keepalive-timeout, or raise "
                      "max-connections. If the server's log has event=connections_limited, also "
                      "raise LimitNOFILE of its service (without systemd: ulimit -n)";
}

static void
certificate(struct cn_ctl_diagnosis *diagnosis, uint64_t end_s, uint64_t now_s)
{
    const bool is_over = end_s <= now_s;
    const uint64_t days = is_over ? 0 : (end_s - now_s) / DAY_S;
    const char *what = "the https certificate has expired";
    struct cn_ctl_finding *finding;

    if (end_s == 0 || days >= LAST_DAYS)
        return;
    if (days > 0)
        what = SAY(diagnosis, "the https certificate expires in %" PRIu64 " day%s", days,
                   days == 1 ? "" : "s");
    else if (!is_over)
        what = "the https certificate expires within a day";
    finding = cn_ctl_diagnosis_add(diagnosis, !is_over, what);
    finding->why = SAY(diagnosis, "clients that check it %s to connect",
                       is_over ? "refuse" : "will then refuse");
    finding->advice = "replace the files that certificate-file and private-key-file (or keystore) "
                      "name, and send the server SIGHUP: open connections stay open";
}

/* Returns "in the last 300 s", where 300 is the length of the server's window (shorter after a
 * start). */
static const char *
window(struct cn_ctl_diagnosis *diagnosis, const uint64_t *m)
{
    return SAY(diagnosis, "in the last %" PRIu64 " s", m[CN_M_RECENT_SECONDS]);
}

static void
rates(struct cn_ctl_diagnosis *diagnosis, const uint64_t *m)
{
    const uint64_t refused = m[CN_M_RECENT_JOBS_REFUSED], jobs = m[CN_M_RECENT_JOBS];
    const uint64_t failed = m[CN_M_RECENT_HTTP_5XX], slow = m[CN_M_RECENT_SLOW_TURNS];
    struct cn_ctl_finding *finding;

    if (refused && cn_percent(refused, jobs) >= REFUSED_PERCENT) {
        finding =
            cn_ctl_diagnosis_add(diagnosis, false,
                                 SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " steps were refused %s",
                                     refused, jobs, window(diagnosis, m)));
        finding->why = "a limit was reached, a sequence was unknown, or no worker was ready";
        finding->advice =
            "each refused client got the reason in its answer; continuo-ctl top shows "
            "which queue grows";
    }
    if (m[CN_M_CLOCK_JUMPS]) {
        finding = cn_ctl_diagnosis_add(
            diagnosis, true,
            SAY(diagnosis, "the machine's wall clock jumped %" PRIu64 " time%s",
                m[CN_M_CLOCK_JUMPS], m[CN_M_CLOCK_JUMPS] == 1 ? "" : "s"));
        finding->why =
            "a user or a time server set the clock; the log lines event=clock_jumped say when "
            "and by how much. The idle clocks of all sequences were restarted";
        finding->advice = "check whether the clock is right now (timedatectl)";
    }
    if (failed && cn_percent(failed, m[CN_M_RECENT_HTTP_REQUESTS]) >= FAILED_PERCENT) {
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " requests failed with a 5xx status %s",
                failed, m[CN_M_RECENT_HTTP_REQUESTS], window(diagnosis, m)));
        finding->why = "handlers failed, workers died, or there was no room for a state or for a "
                       "handler's memory (status 507)";
        finding->advice =
            "the bodies of the answers say which. With status 507 they name the limit "
            "that was reached, or the store: then check the disk of --state-dir (df)";
    }
    if (slow >= SLOW_TURNS_MIN && cn_percent(slow, m[CN_M_RECENT_TURNS]) >= SLOW_TURNS_PERCENT) {
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " turns of the loops took over 1 ms %s", slow,
                m[CN_M_RECENT_TURNS], window(diagnosis, m)));
        finding->why =
            "the server's threads have more work than they can do, or too few processors";
        finding->advice =
            "raise --loops, send smaller requests, or move other work off this machine";
    }
}

void
cn_ctl_diagnose_metrics(struct cn_ctl_diagnosis *diagnosis, const uint64_t *m, uint64_t wall_ms)
{
    connections(diagnosis, m[CN_M_HTTP_CONNECTIONS], m[CN_M_HTTP_CONNECTIONS_MAX]);
    certificate(diagnosis, m[CN_M_CERTIFICATE_END], wall_ms / 1000);
    rates(diagnosis, m);
}
