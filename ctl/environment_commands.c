/* ctl/environment_commands.c - continuo-ctl environments: the packages that the server has
 * installed for Python models.
 *
 * While packages are being installed, the column STEP shows what pip does. An environment without
 * models is kept for a while; its state is "unused". */
#include "ctl/environment_commands.h"

#include <inttypes.h>
#include <jansson.h>

#include "ctl/columns.h"
#include "ctl/json_out.h"

#define SHOWN_DIGITS 12 /* of a digest: as many as tell environments apart */

static const char *
text_of(const json_t *value, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(value, key));

    return text && *text ? text : otherwise;
}

/* "average/1.0, sum/2.0" */
static void
add_models(struct cn_ctl_table *table, const json_t *models)
{
    const json_t *model;
    struct cn_buf text;
    size_t i;

    cn_buf_init(&text, 0);
    json_array_foreach(models, i, model)
        cn_buf_printf(&text, "%s%s/%s", i ? ", " : "", text_of(model, "modelName", ""),
                      text_of(model, "modelVersion", ""));
    cn_ctl_table_add(table, "%.*s", text.len ? (int)text.len : 1, text.len ? text.data : "-");
    cn_buf_fini(&text);
}

static void
put_table(const json_t *environments, struct cn_buf *out)
{
    static const char *const heads[] = {"ENVIRONMENT", "STATE", "SECONDS", "MODELS", "STEP"};
    const json_t *environment;
    struct cn_ctl_table table;
    size_t i;

    cn_ctl_table_init(&table, "llrll");
    for (i = 0; i < sizeof heads / sizeof *heads; i++)
        cn_ctl_table_add(&table, "%s", heads[i]);
    json_array_foreach(environments, i, environment)
    {
        const json_int_t ms = json_integer_value(json_object_get(environment, "forMSec"));

        cn_ctl_table_add(&table, "%.*s", SHOWN_DIGITS, text_of(environment, "digest", "-"));
        cn_ctl_table_add(&table, "%s", text_of(environment, "state", "-"));
        cn_ctl_table_add(&table, "%" PRId64, (int64_t)(ms / 1000));
        add_models(&table, json_object_get(environment, "models"));
        cn_ctl_table_add(&table, "%s", text_of(environment, "step", "-"));
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

int
cn_ctl_environments_show(struct cn_str json, bool as_json, const char *server, struct cn_buf *out,
                         struct cn_error *err)
{
    json_t *value = json_loadb(json.ptr ? json.ptr : "", json.len, 0, NULL);
    json_t *environments = json_object_get(value, "environments");
    int rc = 0;

    if (!json_is_array(environments))
        rc = cn_fail(err, CN_E_PROTOCOL,
                     "the answer from %s has no list of environments; is it the management address "
                     "of a Continuo server?",
                     server);
    else if (as_json)
        cn_ctl_json_print(json_incref(environments), false, out);
    else
        put_table(environments, out);
    json_decref(value);
    return rc;
}

int
cn_ctl_environments(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                    struct cn_buf *out, struct cn_error *err)
{
    struct cn_buf body;
    int rc;

    cn_buf_init(&body, 0);
    rc = cn_ctl_http_get(http, options->management, "/environments", &body, err);
    if (!rc)
        rc = cn_ctl_environments_show(cn_buf_str(&body), options->json, options->management, out,
                                      err);
    cn_buf_fini(&body);
    return rc;
}
