/* management/api/sequence_requests.c - requests about the sequences of a model: listed, shown,
 * exported, imported, copied and deleted. Loop 0.
 *
 * Each function reads the parameters of its endpoint, stops if one of them is wrong, and starts the
 * work in sequences.c with a callback that answers.
 */
#include "management/api/sequence_requests.h"

#include <string.h>

#include "access/key_file.h"
#include "management/api/exported_sequence.h"
#include "management/api/sequences.h"

void
cn_api_list_sequences(struct cn_api_call *call)
{
    uint32_t most = call->management->config->max_page;
    int64_t limit = cn_api_param_number(call, "limit", INT32_MAX);
    int64_t idle = cn_api_param_number(call, "min_idle_ms", INT64_MAX / 4);
    const char *which = cn_api_param(call, "state");
    struct cn_sequence_list list = {
        .prefix = cn_api_param(call, "prefix"),
        .token = cn_api_param(call, "next_page_token"),
        .min_idle_ms = idle > 0 ? (uint64_t)idle : 0,
        .limit = limit < 0 && most > CN_API_LIST_LIMIT ? CN_API_LIST_LIMIT : most,
        .which = CN_SEQUENCES_LIVE,
    };

    if (limit >= 0 && (limit == 0 || limit > most) && !call->err.code)
        cn_fail(&call->err, CN_E_BAD_REQUEST, "limit is %lld; it must be 1 to %u (--max-page-size)",
                (long long)limit, most);
    if (which && cn_sequence_which_parse(which) < 0 && !call->err.code)
        cn_fail(&call->err, CN_E_BAD_REQUEST,
                "state is \"%.40s\"; it must be live, open, closed or all", which);
    if (!cn_api_params_fine(call))
        return;
    if (limit > 0)
        list.limit = (uint32_t)limit;
    if (which)
        list.which = (enum cn_sequence_which)cn_sequence_which_parse(which);
    cn_sequence_list(call->management, call->parts[1], call->n_parts > 3 ? call->parts[2] : NULL,
                     &list, cn_api_described, call);
}

/* A file name for the export: the id, with _ in place of characters that file names should not
 * have. */
static const char *
file_name(struct cn_api_call *call)
{
    char *name = cn_arena_printf(&call->arena, "%.100s.cnseq", call->sequence_id);

    for (char *at = name; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *at) ||
            (at == name && *at == '.'))
            *at = '_';
    return name;
}

static void
on_exported(void *ctx, const struct cn_str *bytes, const struct cn_error *err)
{
    struct cn_api_call *call = ctx;

    if (err) {
        cn_api_fail(call, err->code, err->message);
        return;
    }
    call->request->reply_type = CN_EXPORTED_SEQUENCE_TYPE;
    call->request->reply_file = file_name(call);
    call->request->on_reply(call->request, 200, *bytes);
    cn_api_end(call);
}

static void
import_sequence(struct cn_api_call *call, const char *version)
{
    struct cn_sequence_import import = {
        .bytes = call->request->body,
        .replace = cn_api_param_bool(call, "replace", false),
        .any_model = cn_api_param_bool(call, "any_model", false),
    };

    cn_sequence_import(call->management, call->parts[1], version, call->sequence_id, &import,
                       cn_api_described, call);
}

/* Does the request read what a sequence's state holds? That is the data of a client, which a key
 * that only observes does not get. */
static bool
reads_state(struct cn_api_call *call)
{
    return cn_api_param_bool(call, "export", false) || cn_api_param_bool(call, "show_state", false);
}

void
cn_api_sequence(struct cn_api_call *call)
{
    struct cn_management *management = call->management;
    struct cn_str method = call->request->method;
    const char *name = call->parts[1], *id = call->sequence_id, *to;
    const char *version = call->n_parts > 3 ? call->parts[2] : NULL;

    if (cn_str_eq(method, CN_STR("DELETE"))) {
        cn_sequence_remove(management, name, version, id, cn_api_described, call);
    } else if (cn_str_eq(method, CN_STR("GET"))) {
        if (reads_state(call) &&
            cn_management_check_key(management, call->request->key, CN_SCOPE_MANAGE, &call->err))
            cn_api_fail(call, call->err.code, call->err.message);
        else if (cn_api_param_bool(call, "export", false))
            cn_sequence_export(management, name, version, id, on_exported, call);
        else
            cn_sequence_show(management, name, version, id,
                             cn_api_param_bool(call, "show_state", false), cn_api_described, call);
    } else if (cn_str_eq(method, CN_STR("PUT"))) {
        import_sequence(call, version);
    } else if (cn_str_eq(method, CN_STR("POST"))) {
        to = cn_api_param(call, "fork_to");
        if (to)
            cn_sequence_fork(management, name, version, id, to, cn_api_described, call);
        else
            cn_api_fail(call, CN_E_BAD_REQUEST,
                        "POST copies a sequence: give the new id with ?fork_to=ID");
    } else {
        cn_api_not_allowed(call);
    }
}
