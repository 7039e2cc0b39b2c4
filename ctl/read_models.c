/* ctl/read_models.c - reads all models of a server: the list page by page, then each model with all
 * of its versions.
 *
 * A server may change while it is read. A model that is gone when its turn comes is left out, and
 * is not an error. The pages are bounded by the server; the loop also ends if the server should
 * send empty pages for ever. */
#include "ctl/read_models.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/time/clock.h"
#include "ctl/store_commands.h"

/* Writes "/models/NAME" and what follows it, with a NUL, to `path`, and returns its text. */
static const char *
model_path(struct cn_buf *path, const char *name, const char *more)
{
    cn_buf_reset(path);
    cn_buf_puts(path, "/models/");
    cn_ctl_put_escaped(path, name);
    cn_buf_append(path, more, strlen(more) + 1);
    return path->data;
}

/* Finds out which of several versions is the default: the one that is described when a request
 * names no version. */
static const char *
default_version_of(const struct cn_ctl_server *server, const char *name, struct cn_ctl_view *view,
                   struct cn_buf *path, struct cn_buf *body)
{
    const char *version = NULL;
    struct cn_error err;
    json_t *value;

    if (cn_ctl_http_get(server->http, server->management, model_path(path, name, ""), body, &err))
        return "";
    value = json_loadb(body->data ? body->data : "", body->len, 0, NULL);
    version = json_string_value(json_object_get(json_array_get(value, 0), "modelVersion"));
    version = cn_arena_printf(&view->arena, "%s", version ? version : "");
    json_decref(value);
    return version;
}

static int
read_model(const struct cn_ctl_server *server, const char *name, struct cn_ctl_view *view,
           struct cn_error *err)
{
    const char *default_version = NULL;
    struct cn_buf path, body, other;
    json_t *value;
    int rc;

    cn_buf_init(&path, 0);
    cn_buf_init(&body, 0);
    cn_buf_init(&other, 0);
    rc = cn_ctl_http_get(server->http, server->management, model_path(&path, name, "/all"), &body,
                         err);
    if (rc == 0) {
        value = json_loadb(body.data ? body.data : "", body.len, 0, NULL);
        if (json_array_size(value) > 1)
            default_version = default_version_of(server, name, view, &path, &other);
        json_decref(value);
        rc = cn_ctl_view_add(view, cn_buf_str(&body), default_version, err);
    } else if (rc == CN_E_NOT_FOUND) {
        rc = 0; /* the model was unregistered after the list was made */
    }
    cn_buf_fini(&other);
    cn_buf_fini(&body);
    cn_buf_fini(&path);
    return rc;
}

/* Reads one page of the list. `next` gets the token of the next page, and is empty at the end. */
static int
read_page(const struct cn_ctl_server *server, struct cn_buf *body, char *next, size_t next_bytes,
          struct cn_ctl_view *view, struct cn_error *err)
{
    json_t *page = json_loadb(body->data ? body->data : "", body->len, 0, NULL);
    json_t *models = json_object_get(page, "models"), *model;
    const char *token = json_string_value(json_object_get(page, "nextPageToken")), *name;
    int rc = 0;
    size_t i;

    if (!json_is_array(models))
        rc = cn_fail(err, CN_E_PROTOCOL,
                     "the answer from %s has no list of models; is it the management address of a "
                     "Continuo server?",
                     server->management);
    json_array_foreach(models, i, model)
    {
        name = json_string_value(json_object_get(model, "modelName"));
        if (rc == 0 && name)
            rc = read_model(server, name, view, err);
    }
    /* An empty page ends the list even if it names a next one. Otherwise a faulty server could keep
     * this loop running for ever. */
    snprintf(next, next_bytes, "%s", token && json_array_size(models) > 0 ? token : "");
    json_decref(page);
    return rc;
}

int
cn_ctl_read(const struct cn_ctl_server *server, struct cn_ctl_view *view, struct cn_error *err)
{
    struct cn_buf path, body;
    char next[64] = "";
    int rc;

    view->at_us = cn_now_us();
    cn_buf_init(&path, 0);
    cn_buf_init(&body, 0);
    do {
        cn_buf_reset(&path);
        cn_buf_puts(&path, "/models?limit=100");
        if (next[0]) {
            cn_buf_puts(&path, "&next_page_token=");
            cn_ctl_put_escaped(&path, next);
        }
        cn_buf_append(&path, "", 1);
        rc = cn_ctl_http_get(server->http, server->management, path.data, &body, err);
        if (rc == 0)
            rc = read_page(server, &body, next, sizeof next, view, err);
    } while (rc == 0 && next[0]);
    if (rc == 0)
        cn_ctl_store_read(server->http, server->management, view);
    cn_buf_fini(&body);
    cn_buf_fini(&path);
    return rc;
}

int
cn_ctl_read_metrics(const struct cn_ctl_server *server, struct cn_ctl_view *view,
                    struct cn_error *err)
{
    struct cn_buf body;
    int rc;

    cn_buf_init(&body, 0);
    rc = cn_ctl_http_get(server->http, server->metrics, "/metrics", &body, err);
    if (rc == 0) {
        cn_ctl_view_add_metrics(view, cn_buf_str(&body));
        if (!view->has_metrics)
            rc = cn_fail(err, CN_E_PROTOCOL,
                         "%s has none of Continuo's metrics; is it the metrics address of a "
                         "Continuo server?",
                         server->metrics);
    }
    cn_buf_fini(&body);
    return rc;
}
