/* doctor/diagnosis_json.c - a diagnosis as JSON, for continuo-ctl doctor --json and for the page.
 */
#include "doctor/doctor.h"

static void
put_text(json_t *object, const char *key, const char *text)
{
    json_t *value = text ? json_string(text) : NULL;

    json_object_set_new(object, key, value ? value : json_null());
}

json_t *
cn_ctl_diagnosis_value(const struct cn_ctl_diagnosis *diagnosis, const char *server)
{
    json_t *value = json_object(), *findings = json_array(), *entry;
    const struct cn_ctl_finding *finding;
    unsigned i;

    for (i = 0; i < diagnosis->n_findings; i++) {
        finding = &diagnosis->findings[i];
        entry = json_object();
        put_text(entry, "severity", finding->is_note ? "note" : "problem");
        put_text(entry, "what", finding->what);
        put_text(entry, "why", finding->why);
        put_text(entry, "do", finding->advice);
        json_array_append_new(findings, entry);
    }
    put_text(value, "server", server);
    json_object_set_new(value, "ok", json_boolean(diagnosis->n_problems == 0));
    json_object_set_new(value, "problems", json_integer(diagnosis->n_problems));
    json_object_set_new(value, "findings", findings);
    return value;
}
