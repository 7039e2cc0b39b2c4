/* ctl/doctor.c - rules, each from facts that the server shows to a finding. */
#include "ctl/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A worker that was restarted this often, the last time this short ago, will be again. */
#define OFTEN_RESTARTS 3
#define RECENT_MS (10 * 60 * 1000)
/* Shares from which a figure is worth a word. */
#define NEARLY_FULL_PERCENT 80
#define REFUSED_PERCENT 1
#define FAILED_PERCENT 1
#define SLOW_TURNS_PERCENT 10
#define SLOW_TURNS_MIN 100 /* starting up has some */
/* A call of this length, or of half of responseTimeout, is a long one; but not where the model's calls are. */
#define LONG_CALL_MS 10000
#define LONG_CALL_TIMES 3
/* Of a certificate, from which it is told of. */
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

static struct cn_ctl_finding *
find(struct cn_ctl_diagnosis *diagnosis, bool is_note, const char *what)
{
    static struct cn_ctl_finding over; /* what is beyond the limit goes here, unseen */
    struct cn_ctl_finding *finding = &over;

    diagnosis->n_problems += !is_note;
    if (diagnosis->n_findings < CN_CTL_FINDINGS_MAX)
        finding = &diagnosis->findings[diagnosis->n_findings++];
    *finding = (struct cn_ctl_finding){.is_note = is_note, .what = what};
    return finding;
}

#define SAY(diagnosis, ...) cn_arena_printf(&(diagnosis)->arena, __VA_ARGS__)

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
            "is it running? `pgrep -a continuo` shows. If it is, its line \"Model server started. "
            "... management=URL\" has the address to give with --server URL; if not, start it: "
            "continuo --model-store DIR --models NAME=FILE.mar";
    } else {
        finding = find(diagnosis, false,
                       SAY(diagnosis,
                           "what answers at %s does not speak as the management API of a "
                           "running server",
                           server));
        finding->advice = "the inference address (8080) and the metrics address (8082) are others: "
                          "give the management address, by default http://127.0.0.1:8081, with "
                          "--server URL. A server that is stopping answers with status 503";
    }
    finding->why = SAY(diagnosis, "%s", why->message);
}

void
cn_ctl_diagnose_no_metrics(struct cn_ctl_diagnosis *diagnosis, const struct cn_error *why)
{
    struct cn_ctl_finding *finding = find(
        diagnosis, true, "the metrics were not looked at: refused steps, failures, slow turns");

    finding->why = SAY(diagnosis, "%s", why->message);
    finding->advice = "give the metrics address of the server's line \"Model server started\" with "
                      "--metrics URL";
}

/* --- a model's workers */

/* Why the model has no workers, in the server's own words, the worker's last line of stderr
 * included. NULL: nothing went wrong so far. */
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

/* What to do about a worker that ended so. */
static const char *
advice_for(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model, const char *reason,
           const char *server)
{
    if (strstr(reason, "Too many open files"))
        return "the server may not open more files: raise LimitNOFILE of its service (elsewhere "
               "ulimit -n) and start it again, or lower max-connections; it goes on trying by "
               "itself";
    if (strstr(reason, "cannot start "))
        return "the worker's program is not there or may not run, or no process more is allowed "
               "(TasksMax of the service, ulimit -u): was the server's package removed or replaced "
               "while it runs? Install it and start the server again; it goes on trying by itself";
    if (strstr(reason, " store "))
        return "look at the disk of --state-dir (df, dmesg) and at the folder's owner; the server "
               "goes on trying by itself";
    if (strstr(reason, "SIGKILL") || strstr(reason, "signal 9"))
        return "somebody or the kernel killed it: `dmesg | grep -i oom` shows whether memory ran "
               "out; then lower maxWorkers or give the machine more memory";
    if (strstr(reason, "by signal"))
        return SAY(diagnosis,
                   "the handler's native code crashed: the server's log lines "
                   "event=worker_stderr model=%s show what it printed before. Repair it, pack it "
                   "as a new version, then: curl -X POST '%s/models?url=FILE.mar'; "
                   "curl -X PUT %s/models/%s/NEW/set-default. Until then a request that crashes it "
                   "gets status 500, other requests and other models are answered",
                   model->name, server, server, model->name);
    if (strstr(reason, "killed by the server"))
        return "a step took over the model's responseTimeout, or loading over its startupTimeout: "
               "make the handler faster, or raise them in model-config.yaml and register again";
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
        return; /* the next step starts one */
    if (model->n_workers == 0 && model->min_workers == 0) {
        finding = find(diagnosis, false,
                       SAY(diagnosis, "model %s %s has no worker: its steps are answered with 503",
                           model->name, model->version));
        finding->why = "it was registered or scaled with 0 workers";
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

/* Has it been at work for far longer than its model's calls take? */
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
                       "a call of the handler takes so long (%.1f ms on average), or somebody "
                       "stopped the process; what comes for this worker waits",
                       model->mean_call_ms);
    finding->advice =
        SAY(diagnosis,
            "look what it does: ps -o stat,time,wchan %" PRId64 " (T: it is stopped, kill -CONT "
            "%" PRId64 " lets it go on); gdb -p %" PRId64 " -batch -ex bt. The server ends it "
            "after responseTimeout (%" PRIu64 " s), and the step fails with status 500; kill -9 "
            "%" PRId64 " ends it now, and its steps are sent again. If steps may take so long, "
            "raise responseTimeout in model-config.yaml",
            worker->pid, worker->pid, worker->pid, model->response_timeout_ms / 1000, worker->pid);
}

static void
broken_archive(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false,
             SAY(diagnosis,
                 "model %s %s: its archive %s has changed and cannot be loaded (since %s); the old "
                 "one goes on",
                 model->name, model->version, model->url, model->reload_since));

    finding->why = SAY(diagnosis, "%s", model->reload_error);
    finding->advice = "put a whole archive there (continuo-archiver verify FILE checks it): it is "
                      "tried when the file changes, or with the next load by name";
}

/* What the runtime found when it loaded the model: the same in each worker. */
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
        "docs/torch.md says under \"Rows that depend on each other\" what the warning "
        "means, and what to change in the model or in its YAML";
}

static void
missing_ids(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding = find(
        diagnosis, false,
        SAY(diagnosis,
            "model %s %s: nearly all steps come through a proxy without a sequence id, so each "
            "begins a new sequence",
            model->name, model->version));

    finding->why = "nginx drops header names with underscores, ts_request_sequence_id among them, "
                   "unless it is told not to; or the clients send no id";
    finding->advice = "set underscores_in_headers on in nginx's http block, or let clients send "
                      "Continuo-Sequence or ts-request-sequence-id (docs/behind-a-proxy.md)";
}

/* --- a model's bounds */

/* Workers follow the load up to maxWorkers, where that is on; else an operator says how many. */
static const char *
more_workers(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    if (!model->scales)
        return SAY(diagnosis,
                   "scale it up (PUT /models/%s/%s?min_worker=%" PRIu32 "&max_worker=%" PRIu32
                   "; its workers do not follow the load), raise batchSize, make the handler "
                   "faster, or let clients send less; jobQueueSize is the bound",
                   model->name, model->version, model->n_workers + 1,
                   model->max_workers > model->n_workers ? model->max_workers
                                                         : model->n_workers + 1);
    if (model->n_workers < model->max_workers)
        return SAY(diagnosis,
                   "workers are being added while steps wait, up to maxWorkers (%" PRIu32 "); "
                   "look again soon",
                   model->max_workers);
    return SAY(diagnosis,
               "raise maxWorkers (now %" PRIu32 ", all of them run) or batchSize, make the handler "
               "faster, or let clients send less; jobQueueSize is the bound",
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
        finding->why = "steps come faster than the workers take them; over the bound they are "
                       "refused with 429";
        finding->advice = more_workers(diagnosis, model);
    }
    if (model->max_sequences &&
        percent(model->live_sequences, model->max_sequences) >= NEARLY_FULL_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "model %s %s: %" PRIu64 " of %" PRIu64 " sequences are open",
                     model->name, model->version, model->live_sequences, model->max_sequences));
        finding->why = "over the bound new sequences are refused with 429";
        finding->advice =
            "let clients end their sequences, lower sequenceMaxIdleMSec so that silent "
            "ones close sooner, or raise maxNumSequence";
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
    finding->why = "over the bound new clients wait, or get 503; an idle connection is kept for "
                   "keepalive-timeout";
    finding->advice = "let clients keep fewer connections, lower keepalive-timeout, or raise "
                      "max-connections; where the server's log has event=connections_limited, also "
                      "LimitNOFILE of its service (elsewhere ulimit -n)";
}

static void
certificate(struct cn_ctl_diagnosis *diagnosis, uint64_t end_s, uint64_t now_s)
{
    const bool is_over = end_s <= now_s;
    const uint64_t days = is_over ? 0 : (end_s - now_s) / DAY_S;
    const char *what = "the certificate for https has expired";
    struct cn_ctl_finding *finding;

    if (end_s == 0 || days >= LAST_DAYS)
        return;
    if (days > 0)
        what = SAY(diagnosis, "the certificate for https ends in %" PRIu64 " day%s", days,
                   days == 1 ? "" : "s");
    else if (!is_over)
        what = "the certificate for https ends within a day";
    finding = find(diagnosis, !is_over, what);
    finding->why =
        SAY(diagnosis, "clients that check it refuse to connect%s", is_over ? "" : " from then on");
    finding->advice = "put a new one where certificate-file and private-key-file (or keystore) "
                      "point to, and send the server SIGHUP: open connections stay";
}

/* Archives that no model is made of. */
static void
broken_store(struct cn_ctl_diagnosis *diagnosis, uint64_t n)
{
    struct cn_ctl_finding *finding =
        find(diagnosis, false,
             SAY(diagnosis, "%" PRIu64 " archive%s of the model store cannot be loaded", n,
                 n == 1 ? "" : "s"));

    finding->why = "the server's log says why (event=repository_load_failed), as does "
                   "POST /v2/repository/index on the inference address";
    finding->advice = "repair it (continuo-archiver verify FILE checks it) or take it away";
}

/* "in the last 300 s": of the server's window, which is shorter after a start. */
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
        finding->why = "a bound was met, a sequence was not known, or there was no worker";
        finding->advice = "the refused clients read why; continuo-ctl top shows which queue grows";
    }
    if (m[CN_M_CLOCK_JUMPS]) {
        finding = find(diagnosis, true,
                       SAY(diagnosis, "the machine's wall clock jumped %" PRIu64 " time%s",
                           m[CN_M_CLOCK_JUMPS], m[CN_M_CLOCK_JUMPS] == 1 ? "" : "s"));
        finding->why =
            "somebody or a time server set it; the log's lines event=clock_jumped say when "
            "and by how much. Idle clocks of sequences started anew";
        finding->advice = "look whether it is right now (timedatectl)";
    }
    if (failed && percent(failed, m[CN_M_RECENT_HTTP_REQUESTS]) >= FAILED_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " requests failed with a 5xx status %s",
                     failed, m[CN_M_RECENT_HTTP_REQUESTS], window(diagnosis, m)));
        finding->why = "handlers that fail, workers that die, or no room for a state or a "
                       "handler's memory (status 507)";
        finding->advice = "the answers' bodies say which; for 507 they name the limit that was "
                          "reached, or the store: then look at the disk of --state-dir with df";
    }
    if (slow >= SLOW_TURNS_MIN && percent(slow, m[CN_M_RECENT_TURNS]) >= SLOW_TURNS_PERCENT) {
        finding =
            find(diagnosis, false,
                 SAY(diagnosis, "%" PRIu64 " of %" PRIu64 " turns of the loops took over 1 ms %s",
                     slow, m[CN_M_RECENT_TURNS], window(diagnosis, m)));
        finding->why = "the server's threads have more to do than they manage, or lack processors";
        finding->advice =
            "raise --loops, send smaller requests, or give the machine less other work";
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

/* --- what the server itself calls wrong, and stores that nobody has */

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
        "the server was killed while it registered or unregistered a model, or was started "
        "without one that it had";
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
            if (model->workers[i].ready || !model->last_error) /* else it was told above */
                restarts(diagnosis, model, &model->workers[i], server, wall_ms);
        }
        warned(diagnosis, model);
        bounds(diagnosis, model);
    }
    reasons(diagnosis, view);
    if (!view->models) {
        finding = find(diagnosis, true, "no model is registered");
        finding->advice = SAY(
            diagnosis, "curl -X POST '%s/models?url=FILE.mar', FILE.mar in --model-store", server);
    }
    if (view->has_metrics && view->metrics[CN_M_REPOSITORY_BROKEN] > n_reloads)
        broken_store(diagnosis, view->metrics[CN_M_REPOSITORY_BROKEN] - n_reloads);
    if (view->has_metrics)
        metrics(diagnosis, view, wall_ms);
}
