/* doctor/doctor_model.c - the rules of continuo-ctl doctor about one model: its workers, its
 * archive, its queue and its sequences.
 *
 * The reasons come from the server as texts, mostly with the last line of a worker's stderr. Some
 * advice is chosen by words in that text (advice_for); if no word is known, the text alone is
 * shown. */
#include <inttypes.h>
#include <string.h>

#include "doctor/doctor_priv.h"

/* A worker that was restarted at least this often, most recently within this time, will probably be
 * restarted again. */
#define OFTEN_RESTARTS 3
#define RECENT_MS (10 * 60 * 1000)
/* A call is stuck if it has taken this long, or half of responseTimeout, and at least
 * LONG_CALL_TIMES as long as the model's calls take on average. */
#define LONG_CALL_MS 10000
#define LONG_CALL_TIMES 3

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
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "model %s %s has no worker: its steps are answered with 503",
                model->name, model->version));
        finding->why = "the model was registered with 0 workers or scaled to 0";
        finding->advice = SAY(diagnosis, "curl -X PUT '%s/models/%s/%s?min_worker=1'", server,
                              model->name, model->version);
        return;
    }
    if (!reason) {
        finding = cn_ctl_diagnosis_add(diagnosis, true,
                                       SAY(diagnosis,
                                           "model %s %s has no ready worker yet: it is loading",
                                           model->name, model->version));
        finding->advice = "ask again in a moment";
        return;
    }
    finding = cn_ctl_diagnosis_add(diagnosis, false,
                                   SAY(diagnosis,
                                       "model %s %s has no ready worker: its steps wait or fail",
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

    finding = cn_ctl_diagnosis_add(diagnosis, reason == NULL,
                                   SAY(diagnosis,
                                       "model %s %s has %" PRIu32 " of %" PRIu32 " workers ready%s",
                                       model->name, model->version, model->n_ready,
                                       model->min_workers, reason ? "" : ": others are loading"));
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
    finding = cn_ctl_diagnosis_add(diagnosis, !often,
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
    struct cn_ctl_finding *finding = cn_ctl_diagnosis_add(
        diagnosis, false,
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
    struct cn_ctl_finding *finding = cn_ctl_diagnosis_add(
        diagnosis, false,
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
    finding = cn_ctl_diagnosis_add(
        diagnosis, true,
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
        finding = cn_ctl_diagnosis_add(
            diagnosis, true,
            SAY(diagnosis, "model %s %s: its workers lack walls", model->name, model->version));
        finding->why = SAY(diagnosis, "%s", worker->walls_lacking);
        finding->advice = "run the server on a newer kernel, or do not serve archives of people "
                          "whom you do not trust (docs/walls.md)";
    }
    if (worker->limits_lacking) {
        finding =
            cn_ctl_diagnosis_add(diagnosis, false,
                                 SAY(diagnosis, "model %s %s: limits of its workers do not hold",
                                     model->name, model->version));
        finding->why = SAY(diagnosis, "%s", worker->limits_lacking);
        finding->advice = "run the server as a systemd service with Delegate=yes, or limit the "
                          "whole server (docs/walls.md, \"Limits of a worker\")";
    }
}

static void
missing_ids(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model)
{
    struct cn_ctl_finding *finding = cn_ctl_diagnosis_add(
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

    if (model->queue_size && cn_percent(model->waiting, model->queue_size) >= NEARLY_FULL_PERCENT) {
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "model %s %s: the queue is %s, %" PRIu64 " of %" PRIu64 " jobs wait",
                model->name, model->version,
                model->waiting >= model->queue_size ? "full" : "nearly full", model->waiting,
                model->queue_size));
        finding->why = "steps arrive faster than the workers take them; beyond the limit they are "
                       "refused with status 429";
        finding->advice = more_workers(diagnosis, model);
    }
    if (model->max_sequences &&
        cn_percent(model->live_sequences, model->max_sequences) >= NEARLY_FULL_PERCENT) {
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "model %s %s: %" PRIu64 " of %" PRIu64 " sequences are open",
                model->name, model->version, model->live_sequences, model->max_sequences));
        finding->why = "beyond the limit new sequences are refused with status 429";
        finding->advice =
            "let clients end their sequences, lower sequenceMaxIdleMSec so that idle sequences are "
            "closed sooner, or raise maxNumSequence";
    }
}

void
cn_ctl_diagnose_model(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model,
                      const char *server, uint64_t wall_ms)
{
    if (model->n_ready == 0)
        no_worker(diagnosis, model, server);
    else if (model->n_ready < model->min_workers)
        few_workers(diagnosis, model, server);
    if (model->reload_error)
        broken_archive(diagnosis, model);
    if (model->ids_missing)
        missing_ids(diagnosis, model);
    for (uint32_t i = 0; i < model->n_workers; i++) {
        if (is_stuck(model, &model->workers[i]))
            stuck(diagnosis, model, &model->workers[i]);
        if (model->workers[i].ready || !model->last_error) /* else no_worker() reported it */
            restarts(diagnosis, model, &model->workers[i], server, wall_ms);
    }
    warned(diagnosis, model);
    unprotected(diagnosis, model);
    bounds(diagnosis, model);
}
