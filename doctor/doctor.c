/* doctor/doctor.c - the diagnosis of continuo-ctl doctor: rules turn facts that the server shows
 * into findings (what is wrong, why, and what to do).
 *
 * A rule is a function that looks at the view, and adds a finding if something is wrong. In doubt
 * it reports nothing: an operator who has found nothing wrong after two findings does not look
 * after the third. So a restart counts only if it was recent or there were many, a share only above
 * a threshold, and a long call only if this model's calls are usually much shorter. The rules about
 * a model are in doctor_model.c, and those about figures of the whole server in doctor_metrics.c;
 * the thresholds stand at the heads of these files.
 *
 * A problem makes the exit status 1, a note does not. The advice names the option or the command
 * that helps, with this server's own names and addresses where they are known. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <string.h>

#include "doctor/doctor_priv.h"

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

/* --- the server */

void
cn_ctl_diagnose_silence(struct cn_ctl_diagnosis *diagnosis, const char *server,
                        const struct cn_error *why)
{
    struct cn_ctl_finding *finding;

    if (why->code == CN_E_UNAVAILABLE) {
        finding = cn_ctl_diagnosis_add(diagnosis, false,
                                       SAY(diagnosis, "no server answers at %s", server));
        finding->advice =
            "check with `pgrep -a continuo` whether it is running. If it is, give the address of "
            "its line \"Model server started. ... management=URL\" with --server URL. If it is "
            "not, "
            "start it: continuo --model-store DIR --models NAME=FILE.mar";
    } else {
        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
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
    struct cn_ctl_finding *finding = cn_ctl_diagnosis_add(
        diagnosis, true,
        "the metrics could not be read, so refused steps, failed requests and slow turns were "
        "not checked");

    finding->why = SAY(diagnosis, "%s", why->message);
    finding->advice = "give the metrics address of the server's line \"Model server started\" with "
                      "--metrics URL";
}

/* --- problems that the server itself reports, and stores without a model */

/* Reports archives of the store that could not be loaded and that no registered model came from. */
static void
broken_store(struct cn_ctl_diagnosis *diagnosis, uint64_t n)
{
    struct cn_ctl_finding *finding = cn_ctl_diagnosis_add(
        diagnosis, false,
        SAY(diagnosis, "%" PRIu64 " archive%s of the model store cannot be loaded", n,
            n == 1 ? "" : "s"));

    finding->why = "the server's log says why (event=repository_load_failed), as does "
                   "POST /v2/repository/index on the inference address";
    finding->advice = "repair the archive (continuo-archiver verify FILE checks it) or remove it";
}

static void
reasons(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view)
{
    struct cn_ctl_finding *finding;

    for (unsigned i = 0; i < view->n_reasons; i++) {
        const struct cn_ctl_reason *reason = &view->reasons[i];

        finding = cn_ctl_diagnosis_add(
            diagnosis, false,
            SAY(diagnosis, "%s: %s", reason->subject,
                strcmp(reason->kind, "store_damaged") == 0   ? "the store is damaged"
                : strcmp(reason->kind, "store_missing") == 0 ? "the store's folder is gone"
                                                             : reason->kind));
        finding->why = SAY(diagnosis, "%s", reason->text);
    }
    if (view->n_unused == 0)
        return;
    finding = cn_ctl_diagnosis_add(
        diagnosis, true,
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
    uint32_t n_reloads = 0;

    for (model = view->models; model; model = model->next) {
        cn_ctl_diagnose_model(diagnosis, model, server, wall_ms);
        n_reloads += model->reload_error != NULL;
    }
    reasons(diagnosis, view);
    if (!view->models) {
        finding = cn_ctl_diagnosis_add(diagnosis, true, "no model is registered");
        finding->advice = SAY(diagnosis,
                              "register one: curl -X POST '%s/models?url=FILE.mar', where FILE.mar "
                              "lies in --model-store",
                              server);
    }
    if (view->has_metrics && view->metrics[CN_M_REPOSITORY_BROKEN] > n_reloads)
        broken_store(diagnosis, view->metrics[CN_M_REPOSITORY_BROKEN] - n_reloads);
    if (view->has_metrics)
        cn_ctl_diagnose_metrics(diagnosis, view->metrics, wall_ms);
}
