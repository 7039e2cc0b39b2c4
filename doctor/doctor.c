/* doctor/doctor.c - the rules of continuo-ctl doctor: each turns facts that the server shows into a
 * finding (what is wrong, why, and what to do).
 *
 * A rule is a function that looks at the view, and calls `find` if something is wrong. In doubt it
 * reports nothing: an operator who has found nothing wrong after two findings does not look after
 * the third. So a restart counts only if it was recent or there were many, a share only above a
 * threshold, and a long call only if this model's calls are usually much shorter. The thresholds
 * stand at the head of this file.
 *
 * A problem makes the exit status 1, a note does not. The advice names the option or the command
 * that helps, with this server's own names and addresses where they are known.
 *
 * The reasons come from the server as texts, mostly with the last line of a worker's stderr. Some
 * advice is chosen by words in that text (advice_for); if no word is known, the text alone is
 * shown. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A worker that was restarted at least this often, most recently within this time, will probably be
 * restarted again. */
#define OFTEN_RESTARTS 3
#define RECENT_MS (10 * 60 * 1000)
/* Shares above which a figure becomes a finding. */
#define NEARLY_FULL_PERCENT 80
#define REFUSED_PERCENT 1
#define FAILED_PERCENT 1
#define SLOW_TURNS_PERCENT 10
#define SLOW_TURNS_MIN 100 /* starting up alone causes some */
/* A call is stuck if it has taken this long, or half of responseTimeout, and at least
 * LONG_CALL_TIMES as long as the model's calls take on average. */
#define LONG_CALL_MS 10000
#define LONG_CALL_TIMES 3
/* A certificate that expires within this number of days becomes a finding. */
#define LAST_DAYS 14
#define DAY_S 86400u

void
cn_ctl_diagnosis_init(struct cn_ctl_diagnosis *diagnosis)
{
    diagnosis->n_findings = diagnosis->n_problems = 0;
    cn_arena_init(&diagnosis->arena);
}

void
cn_ctl_diagnosis_fini(struct cn_ctl_diagnosis *diagnosis)
{
    cn_arena_fini(&diagnosis->arena);
    diagnosis->n_findings = diagnosis->n_problems = 0;
}

struct cn_ctl_finding *
cn_ctl_diagnosis_add(struct cn_ctl_diagnosis *diagnosis, bool is_note, const char *what)
{
    static struct cn_ctl_finding
        over; /* takes the findings beyond the limit, which are not shown */
    struct cn_ctl_finding *finding = &over;

    diagnosis->n_problems += !is_note;
    if (diagnosis->n_findings < CN_CTL_FINDINGS_MAX)
        finding = &diagnosis->findings[diagnosis->n_findings++];
    *finding = (struct cn_ctl_finding){.is_note = is_note, .what = what};
    return finding;
}

static struct cn_ctl_finding *
find(struct cn_ctl_diagnosis *diagnosis, bool is_note, const char *what)
{
    return cn_ctl_diagnosis_add(diagnosis, is_note, what);
}

#define SAY(diagnosis, ...) cn_arena_printf(&(diagnosis)->arena, __VA_ARGS__)

/* Computes with doubles, because part * 100 could exceed 64 bits. 0 of 0 is 0 percent. */
static uint64_t
percent(uint64_t part, uint64_t whole)
{
    return whole ? (uint64_t)((double)part * 100 / (double)whole) : 0;
}

/* --- the server */

void
cn_ctl_diagnose_silence(struct cn_ctl_diagnosis *diagnosis, const char *server,
                        const struct cn_error *why)
{
    struct cn_ctl_finding *finding;

    if (why->code == CN_E_UNAVAILABLE) {
        finding = find(diagnosis, false, SAY(diagnosis, "no server answers at %s", server));
        finding->advice =
            "check with `pgrep -a continuo` whether it is running. If it is, give the address of "
            "its line \"Model server started. ... management=URL\" with --server URL. If it is "
            "not, "
            "start it: continuo --model-store DIR --models NAME=FILE.mar";
    } else {
        finding = find(diagnosis, false,
                       SAY(diagnosis,
                           "the answer from %s is not that of the management API of a running "
                           "server",
                           server));
        finding->advice = "give the management address, by default http://127.0.0.1:8081, with "
                          "--server URL; the inference address (8080) and the metrics address "
                          "(8082) do not serve this API. A server that is stopping answers with "
                          "status 503";
    }
    finding->why = SAY(diagnosis, "%s", why->message);
}

void
cn_ctl_diagnose_no_metrics(struct cn_ctl_diagnosis *diagnosis, const struct cn_error *why)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, true,
             "the metrics could not be read, so refused steps, failed requests and slow turns were "
             "not checked");

    finding->why = SAY(diagnosis, "%s", why->message);
    finding->advice = "give the metrics address of the server's line \"Model server started\" with "
                      "--metrics URL";
}

/* --- a model's workers */

/* Returns why the model has no workers, as the server reports it (with the worker's last line of
 * stderr), or NULL if nothing has gone wrong so far. */
static const char *
reason_of(const struct cn_ctl_model *model)
{
    uint32_t i;

    if (model->last_error)
        return model->last_error;
    for (i = 0; i < model->n_workers; i++)
        if (!model->workers[i].ready && model->workers[i].last_exit)
            return model->workers[i].last_exit;
    return NULL;
}

/* Returns what to do about a worker that ended for this reason. */
static const char *
advice_for(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model, const char *reason,
           const char *server)
{
    if (strstr(reason, "Too many open files"))
        return "the server has reached its limit of open files: raise LimitNOFILE of its service "
               "(without systemd: ulimit -n) and restart it, or lower max-connections. The server "
               "keeps trying to start the worker";
    if (strstr(reason, "cannot start "))
        return "the worker program is missing or not executable, or the limit of processes is "
               "reached (TasksMax of the service, ulimit -u). If the server's package was removed "
               "or replaced while it runs, install it and restart the server. The server keeps "
               "trying to start the worker";
    if (strstr(reason, " store "))
        return "check the disk of --state-dir (df, dmesg) and the owner of the folder. The server "
               "keeps trying to start the worker";
    if (strstr(reason, "SIGKILL") || strstr(reason, "signal 9"))
        return "the kernel or a user killed the worker: `dmesg | grep -i oom` shows whether memory "
               "ran out. If it did, lower maxWorkers or give the machine more memory";
    if (strstr(reason, "by signal"))
        return SAY(diagnosis,
                   "the handler's native code crashed: the server's log lines "
                   "event=worker_stderr model=%s show what it printed before. Repair it, pack it "
                   "as a new version, then: curl -X POST '%s/models?url=FILE.mar'; "
                   "curl -X PUT %s/models/%s/NEW/set-default. Until then a request that crashes it "
                   "is answered with status 500; other requests and other models are served",
                   model->name, server, server, model->name);
    if (strstr(reason, "killed by the server"))
        return "a step took longer than the model's responseTimeout, or loading took longer than "
               "its startupTimeout: make the handler faster, or raise the timeout in "
               "model-config.yaml and register the model again";
    return SAY(diagnosis,
               "repair the handler or its model-config.yaml, pack it again (continuo-archiver "
               "verify FILE checks it), then: curl -X DELETE %s/models/%s/%s; "
               "curl -X POST '%s/models?url=FILE.mar'",
               server, model->name, model->version, server);
}

static void
no_worker(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model, const char *server)
{
    const char *reason = reason_of(model);
    struct cn_ctl_finding *finding;

    if (model->n_workers == 0 && model->scales && model->max_workers > 0)
        return; /* the next step starts a worker */
    if (model->n_workers == 0 && model->min_workers == 0) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "model %s %s has no worker: its steps are answered with 503",
                           model->name, model->version));
        finding->why = "the model was registered with 0 workers or scaled to 0";
        finding->advice = SAY(diagnosis, "curl -X PUT '%s/models/%s/%s?min_worker=1'", server,
                              model->name, model->version);
        return;
    }
    if (!reason) {
        finding = find(diagnosis, true,
                       SAY(diagnosis, "model %s %s has no ready worker yet: it is loading",
                           model->name, model->version));
        finding->advice = "ask again in a moment";
        return;
    }
    finding = find(diagnosis, false,
                   SAY(diagnosis, "model %s %s has no ready worker: its steps wait or fail",
                       model->name, model->version));
    finding->why = SAY(diagnosis, "%s", reason);
    finding->advice = advice_for(diagnosis, model, reason, server);
}

static void
few_workers(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model,
            const char *server)
{
    const char *reason = reason_of(model);
    struct cn_ctl_finding *finding;

    finding = find(diagnosis, reason == NULL,
                   SAY(diagnosis, "model %s %s has %" PRIu32 " of %" PRIu32 " workers ready%s",
                       model->name, model->version, model->n_ready, model->min_workers,
                       reason ? "" : ": others are loading"));
    if (reason) {
        finding->why = SAY(diagnosis, "%s", reason);
        finding->advice = advice_for(diagnosis, model, reason, server);
    }
}

static void
restarts(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model,
         const struct cn_ctl_worker *worker, const char *server, uint64_t wall_ms)
{
    uint64_t age_ms = wall_ms > worker->started_wall_ms ? wall_ms - worker->started_wall_ms : 0;
    bool often = worker->restarts >= OFTEN_RESTARTS && age_ms < RECENT_MS;
    struct cn_ctl_finding *finding;

    if (worker->restarts == 0 || !worker->last_exit)
        return;
    finding = find(diagnosis, !often,
                   SAY(diagnosis,
                       "model %s %s: worker %" PRIu32 " was restarted %" PRIu32
                       " time%s, the last time %" PRIu64 " s ago",
                       model->name, model->version, worker->index, worker->restarts,
                       worker->restarts == 1 ? "" : "s", age_ms / 1000));
    finding->why = SAY(diagnosis, "%s", worker->last_exit);
    if (often)
        finding->advice = advice_for(diagnosis, model, worker->last_exit, server);
}

/* Returns whether the worker's present call takes far longer than the model's calls usually do. */
static bool
is_stuck(const struct cn_ctl_model *model, const struct cn_ctl_worker *worker)
{
    uint64_t limit_ms = model->response_timeout_ms;

    if (worker->busy_rows == 0 || (double)worker->busy_ms < LONG_CALL_TIMES * model->mean_call_ms)
        return false;
    return worker->busy_ms >= LONG_CALL_MS || (limit_ms && worker->busy_ms >= limit_ms / 2);
}

static void
stuck(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model,
      const struct cn_ctl_worker *worker)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false,
             SAY(diagnosis,
                 "model %s %s: worker %" PRIu32 " (pid %" PRId64 ") has not answered for %" PRIu64
                 ".%" PRIu64 " s; it has %" PRIu64 " step%s%s%s",
                 model->name, model->version, worker->index, worker->pid, worker->busy_ms / 1000,
                 worker->busy_ms / 100 % 10, worker->busy_rows, worker->busy_rows == 1 ? "" : "s",
                 worker->busy_sequence ? ", the first of sequence " : "",
                 worker->busy_sequence ? worker->busy_sequence : ""));

    finding->why = SAY(diagnosis,
                       "a call of the handler takes unusually long (%.1f ms on average), or the "
                       "process was stopped; the steps for this worker wait",
                       model->mean_call_ms);
    finding->advice =
        SAY(diagnosis,
            "see what the process does: ps -o stat,time,wchan %" PRId64 " (T means stopped: "
            "kill -CONT %" PRId64 " resumes it); gdb -p %" PRId64 " -batch -ex bt. After "
            "responseTimeout (%" PRIu64 " s) the server ends it and the step fails with status "
            "500; kill -9 %" PRId64 " ends it now, and its steps are sent again. If steps may "
            "take this long, raise responseTimeout in model-config.yaml",
            worker->pid, worker->pid, worker->pid, model->response_timeout_ms / 1000, worker->pid);
}

static void
broken_archive(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false,
             SAY(diagnosis,
                 "model %s %s: its archive %s has changed and cannot be loaded (since %s); the "
                 "version in use is still served",
                 model->name, model->version, model->url, model->reload_since));

    finding->why = SAY(diagnosis, "%s", model->reload_error);
    finding->advice = "replace the file with a valid archive (continuo-archiver verify FILE checks "
                      "it). The server loads it when the file changes, or at the next load by name";
}

/* Reports the warning of the runtime that loaded the model; it is the same in every worker. */
static void
warned(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding;
    uint32_t i = 0;

    while (i < model->n_workers && !model->workers[i].warning)
        i++;
    if (i == model->n_workers)
        return;
    finding =
        find(diagnosis, true,
             SAY(diagnosis, "model %s %s: its runtime gave a warning when it loaded the model",
                 model->name, model->version));
    finding->why = SAY(diagnosis, "%s", model->workers[i].warning);
    finding->advice =
        strstr(model->workers[i].warning, "is never called")
            ? "give the handler's function the name that the server calls; if it is a function of "
              "your own, make it local"
            : "the section \"Rows that depend on each other\" of docs/torch.md explains, also for "
              "ONNX models, what the warning means, and what to change in the model or in its YAML";
}

/* Reports what does not stand around the model's workers; it is the same for all of them. */
static void
unprotected(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    const struct cn_ctl_worker *worker = model->workers;
    struct cn_ctl_finding *finding;

    if (model->n_workers == 0)
        return;
    if (worker->walls_lacking) {
        finding = find(
            diagnosis, true,
            SAY(diagnosis, "model %s %s: its workers lack walls", model->name, model->version));
        finding->why = SAY(diagnosis, "%s", worker->walls_lacking);
        finding->advice = "run the server on a newer kernel, or do not serve archives of people "
                          "whom you do not trust (docs/walls.md)";
    }
    if (worker->limits_lacking) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "model %s %s: limits of its workers do not hold", model->name,
                           model->version));
        finding->why = SAY(diagnosis, "%s", worker->limits_lacking);
        finding->advice = "run the server as a systemd service with Delegate=yes, or limit the "
                          "whole server (docs/walls.md, \"Limits of a worker\")";
    }
}

static void
missing_ids(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding = find(
        diagnosis, false,
        SAY(diagnosis,
            "model %s %s: nearly all steps arrive through a proxy without a sequence id, so each "
            "opens a new sequence",
            model->name, model->version));

    finding->why = "nginx by default drops headers with underscores in their names, such as "
                   "ts_request_sequence_id; or the clients send no id";
    finding->advice = "set underscores_in_headers on in nginx's http block, or let clients send "
                      "Continuo-Sequence or ts-request-sequence-id (docs/behind-a-proxy.md)";
}

/* --- a model's bounds */

/* Returns how to get more workers: they follow the load up to maxWorkers if the model scales,
 * else an operator sets their number. */
static const char *
more_workers(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    if (!model->scales)
        return SAY(diagnosis,
                   "add workers (PUT /models/%s/%s?min_worker=%" PRIu32 "&max_worker=%" PRIu32
                   "; this model's workers do not follow the load), raise batchSize, make the "
                   "handler faster, or send fewer requests; jobQueueSize sets the limit",
                   model->name, model->version, model->n_workers + 1,
                   model->max_workers > model->n_workers ? model->max_workers
                                                         : model->n_workers + 1);
    if (model->n_workers < model->max_workers)
        return SAY(diagnosis,
                   "the server adds workers while steps wait, up to maxWorkers (%" PRIu32 "); "
                   "check again soon",
                   model->max_workers);
    return SAY(diagnosis,
               "raise maxWorkers (now %" PRIu32 ", and all of them run) or batchSize, make the "
               "handler faster, or send fewer requests; jobQueueSize sets the limit",
               model->max_workers);
}

static void
bounds(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding;

    if (model->queue_size && percent(model->waiting, model->queue_size) >= NEARLY_FULL_PERCENT) {
        finding = find(diagnosis, false,
                       SAY(diagnosis,
                           "model %s %s: the queue is %s, %" PRIu64 " of %" PRIu64 " jobs wait",
                           model->name, model->version,
                           model->waiting >= model->queue_size ? "full" : "nearly full",
                           model->waiting, model->queue_size));
        finding->why = "steps arrive faster than the workers take them; beyond the limit they are "
                       "refused with status 429";
        finding->advice = more_workers(diagnosis, model);
    }
    if (model->max_sequences &&
        percent(model->live_sequences, model->max_sequences) >= NEARLY_FULL_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "model %s %s: %" PRIu64 " of %" PRIu64 " sequences are open",
                     model->name, model->version, model->live_sequences, model->max_sequences));
        finding->why = "beyond the limit new sequences are refused with status 429";
        finding->advice =
            "let clients end their sequences, lower sequenceMaxIdleMSec so that idle sequences are "
            "closed sooner, or raise maxNumSequence";
    }
}

/* --- the whole server, from its metrics */

static void
connections(struct cn_ctl_diagnosis *diagnosis, uint64_t open, uint64_t max)
{
    struct cn_ctl_finding *finding;

    if (max == 0 || percent(open, max) < NEARLY_FULL_PERCENT)
        return;
    finding =
        find(diagnosis, false,
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
    finding = find(diagnosis, !is_over, what);
    finding->why = SAY(diagnosis, "clients that check it %s to connect",
                       is_over ? "refuse" : "will then refuse");
    finding->advice = "replace the files that certificate-file and private-key-file (or keystore) "
                      "name, and send the server SIGHUP: open connections stay open";
}

/* Reports archives of the store that could not be loaded and that no registered model came from. */
static void
broken_store(struct cn_ctl_diagnosis *diagnosis, uint64_t n)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false,
             SAY(diagnosis, "%" PRIu64 " archive%s of the model store cannot be loaded", n,
                 n == 1 ? "" : "s"));

    finding->why = "the server's log says why (event=repository_load_failed), as does "
                   "POST /v2/repository/index on the inference address";
    finding->advice = "repair the archive (continuo-archiver verify FILE checks it) or remove it";
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

    if (refused && percent(refused, jobs) >= REFUSED_PERCENT) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " steps were refused %s", refused,
                           jobs, window(diagnosis, m)));
        finding->why = "a limit was reached, a sequence was unknown, or no worker was ready";
        finding->advice =
            "each refused client got the reason in its answer; continuo-ctl top shows "
            "which queue grows";
    }
    if (m[CN_M_CLOCK_JUMPS]) {
        finding = find(diagnosis, true,
                       SAY(diagnosis, "the machine's wall clock jumped %" PRIu64 " time%s",
                           m[CN_M_CLOCK_JUMPS], m[CN_M_CLOCK_JUMPS] == 1 ? "" : "s"));
        finding->why =
            "a user or a time server set the clock; the log lines event=clock_jumped say when "
            "and by how much. The idle clocks of all sequences were restarted";
        finding->advice = "check whether the clock is right now (timedatectl)";
    }
    if (failed && percent(failed, m[CN_M_RECENT_HTTP_REQUESTS]) >= FAILED_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " requests failed with a 5xx status %s",
                     failed, m[CN_M_RECENT_HTTP_REQUESTS], window(diagnosis, m)));
        finding->why = "handlers failed, workers died, or there was no room for a state or for a "
                       "handler's memory (status 507)";
        finding->advice =
            "the bodies of the answers say which. With status 507 they name the limit "
            "that was reached, or the store: then check the disk of --state-dir (df)";
    }
    if (slow >= SLOW_TURNS_MIN && percent(slow, m[CN_M_RECENT_TURNS]) >= SLOW_TURNS_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " turns of the loops took over 1 ms %s",
                     slow, m[CN_M_RECENT_TURNS], window(diagnosis, m)));
        finding->why =
            "the server's threads have more work than they can do, or too few processors";
        finding->advice =
            "raise --loops, send smaller requests, or move other work off this machine";
    }
}

static void
metrics(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view, uint64_t wall_ms)
{
    const uint64_t *m = view->metrics;

    connections(diagnosis, m[CN_M_HTTP_CONNECTIONS], m[CN_M_HTTP_CONNECTIONS_MAX]);
    certificate(diagnosis, m[CN_M_CERTIFICATE_END], wall_ms / 1000);
    rates(diagnosis, m);
}

/* --- problems that the server itself reports, and stores without a model */

static void
reasons(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view)
{
    struct cn_ctl_finding *finding;

    for (unsigned i = 0; i < view->n_reasons; i++) {
        const struct cn_ctl_reason *reason = &view->reasons[i];

        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "%s: %s", reason->subject,
                     strcmp(reason->kind, "store_damaged") == 0   ? "the store is damaged"
                     : strcmp(reason->kind, "store_missing") == 0 ? "the store's folder is gone"
                                                                  : reason->kind));
        finding->why = SAY(diagnosis, "%s", reason->text);
    }
    if (view->n_unused == 0)
        return;
    finding =
        find(diagnosis, true,
             SAY(diagnosis, "%u store%s of %" PRIu64 " MB belong%s to no registered model: %s%s",
                 view->n_unused, view->n_unused == 1 ? "" : "s", view->unused_bytes / 1000000,
                 view->n_unused == 1 ? "s" : "", view->unused, view->n_unused == 1 ? "" : ", ..."));
    finding->why =
        "the server was killed while it registered or unregistered a model, or it was started "
        "without a model that it had before";
    finding->advice =
        "continuo-ctl store ls lists them; register the model again to use its store, or "
        "delete it with continuo-ctl store rm MODEL/VERSION";
}

void
cn_ctl_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                const char *server, uint64_t wall_ms)
{
    const struct cn_ctl_model *model;
    struct cn_ctl_finding *finding;
    uint32_t i, n_reloads = 0;

    for (model = view->models; model; model = model->next) {
        if (model->n_ready == 0)
            no_worker(diagnosis, model, server);
        else if (model->n_ready < model->min_workers)
            few_workers(diagnosis, model, server);
        if (model->reload_error)
            broken_archive(diagnosis, model);
        n_reloads += model->reload_error != NULL;
        if (model->ids_missing)
            missing_ids(diagnosis, model);
        for (i = 0; i < model->n_workers; i++) {
            if (is_stuck(model, &model->workers[i]))
                stuck(diagnosis, model, &model->workers[i]);
            if (model->workers[i].ready || !model->last_error) /* else no_worker() reported it */
                restarts(diagnosis, model, &model->workers[i], server, wall_ms);
        }
        warned(diagnosis, model);
        unprotected(diagnosis, model);
        bounds(diagnosis, model);
    }
    reasons(diagnosis, view);
    if (!view->models) {
        finding = find(diagnosis, true, "no model is registered");
        finding->advice = SAY(diagnosis,
                              "register one: curl -X POST '%s/models?url=FILE.mar', where FILE.mar "
                              "lies in --model-store",
                              server);
    }
    if (view->has_metrics && view->metrics[CN_M_REPOSITORY_BROKEN] > n_reloads)
        broken_store(diagnosis, view->metrics[CN_M_REPOSITORY_BROKEN] - n_reloads);
    if (view->has_metrics)
        metrics(diagnosis, view, wall_ms);
}
