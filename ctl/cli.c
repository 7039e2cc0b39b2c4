/* ctl/cli.c - runs one command of continuo-ctl.
 *
 * A command reads what it needs from the server's management API, writes its result as one text to
 * standard output, and returns the exit status: 0 when all is well, 1 when the command failed or
 * found a problem, 2 for a wrong command line. So `continuo-ctl status` and `doctor` can be used in
 * scripts as they are: they return 1 for a server that is not healthy.
 *
 * With --json, standard output gets JSON in each case, also after an error, since a program that
 * reads the output must not have to parse two formats. Messages for people always go to standard
 * error.
 *
 * Only `top` writes by itself, because it refreshes the screen while it runs. */
#include "ctl/cli.h"

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "ctl/doctor_show.h"
#include "ctl/environment_commands.h"
#include "ctl/nodes/node_commands.h"
#include "ctl/read_models.h"
#include "ctl/seq.h"
#include "ctl/show.h"
#include "ctl/store_commands.h"
#include "ctl/top.h"
#include "ctl/verbs/shells.h"
#include "ctl/verbs/verbs.h"

static void
put_out(struct cn_buf *text)
{
    if (text->len > 0) /* an empty buffer has no memory */
        fwrite(text->data, 1, text->len, stdout);
    cn_buf_fini(text);
}

static int
fail(const struct cn_ctl_options *options, const struct cn_error *err)
{
    struct cn_buf text;

    fprintf(stderr, "continuo-ctl: error: %s\n", err->message);
    if (err->code == CN_E_UNAVAILABLE && options->command == CN_CTL_PREDICT)
        fputs("Is the server running, and is this its inference address (--inference)? "
              "continuo-ctl doctor explains what to do.\n",
              stderr);
    else if (err->code == CN_E_UNAVAILABLE)
        fputs("Is the server running, and is this its management address (--server)? "
              "continuo-ctl doctor explains what to do.\n",
              stderr);
    if (options->json) {
        cn_buf_init(&text, 0);
        cn_ctl_json_error(err->message, false, &text);
        put_out(&text);
    }
    return CN_CTL_WRONG;
}

static int
run_show(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    const char *from = options->management;
    struct cn_ctl_view view;
    struct cn_error err;
    struct cn_buf text;
    int status = CN_CTL_FINE;

    cn_ctl_view_init(&view);
    if (cn_ctl_read(server, &view, &err)) {
        cn_ctl_view_fini(&view);
        return fail(options, &err);
    }
    cn_buf_init(&text, 0);
    if (options->command == CN_CTL_STATUS) {
        (options->json ? cn_ctl_json_status : cn_ctl_show_status)(&view, from, &text);
        status = cn_ctl_view_totals(&view).healthy ? CN_CTL_FINE : CN_CTL_WRONG;
    } else if (options->command == CN_CTL_MODELS) {
        (options->json ? cn_ctl_json_models : cn_ctl_show_models)(&view, &text);
    } else {
        (options->json ? cn_ctl_json_workers : cn_ctl_show_workers)(&view, &text);
    }
    put_out(&text);
    cn_ctl_view_fini(&view);
    return status;
}

/* The doctor is the one command for which a server that does not answer is a finding and not an
 * error. It also does without the metrics page if that cannot be read: the findings that need
 * metrics are then missing, and a note says so. */
static int
run_doctor(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    struct cn_ctl_diagnosis *diagnosis = cn_alloc(sizeof *diagnosis);
    struct cn_ctl_view view;
    struct cn_error err;
    struct cn_buf text;
    bool silent;
    int status;

    cn_ctl_diagnosis_init(diagnosis);
    cn_ctl_view_init(&view);
    silent = cn_ctl_read(server, &view, &err) != 0;
    if (silent) {
        cn_ctl_diagnose_silence(diagnosis, options->management, &err);
    } else {
        if (cn_ctl_read_metrics(server, &view, &err))
            cn_ctl_diagnose_no_metrics(diagnosis, &err);
        cn_ctl_diagnose(diagnosis, &view, options->management, cn_wall_ms());
        cn_ctl_nodes_diagnose_self(server, diagnosis);
    }
    cn_buf_init(&text, 0);
    if (options->json)
        cn_ctl_diagnosis_json(diagnosis, options->management, &text);
    else
        cn_ctl_diagnosis_show(diagnosis, silent ? NULL : &view, options->management, &text);
    put_out(&text);
    status = diagnosis->n_problems ? CN_CTL_WRONG : CN_CTL_FINE;
    cn_ctl_view_fini(&view);
    cn_ctl_diagnosis_fini(diagnosis);
    cn_free(diagnosis);
    return status;
}

static int
run_seq(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    struct cn_ctl_options own = *options;
    struct cn_buf text, hint, address;
    struct cn_error err = {0};
    int status = CN_CTL_FINE;

    cn_buf_init(&text, 0);
    cn_buf_init(&hint, 0);
    cn_buf_init(&address, 0);
    if (own.nodes && cn_ctl_nodes_any(server->http, options, &address, &err) == 0)
        own.management = address.data;
    if (err.code || cn_ctl_seq(server->http, &own, &text, &hint, &err))
        status = fail(options, &err);
    cn_buf_fini(&address);
    if (text.len)
        fwrite(text.data, 1, text.len, stdout);
    if (hint.len)
        fwrite(hint.data, 1, hint.len, stderr);
    cn_buf_fini(&text);
    cn_buf_fini(&hint);
    return status;
}

static int
run_store(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    struct cn_error err;
    struct cn_buf text;
    int status = CN_CTL_FINE;

    cn_buf_init(&text, 0);
    if (cn_ctl_store(server->http, options, &text, &err))
        status = fail(options, &err);
    put_out(&text);
    return status;
}

static int
run_verb(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    struct cn_error err = {0};
    struct cn_buf text, hint;
    int status = CN_CTL_FINE;

    cn_buf_init(&text, 0);
    cn_buf_init(&hint, 0);
    if (cn_ctl_verb(server->http, options, &text, &hint, &err))
        status = err.code == CN_E_CONFIG ? CN_CTL_USAGE : CN_CTL_WRONG;
    if (status != CN_CTL_FINE)
        fail(options, &err);
    put_out(&text);
    if (hint.len)
        fwrite(hint.data, 1, hint.len, stderr);
    cn_buf_fini(&hint);
    return status;
}

static int
run_environments(const struct cn_ctl_options *options, const struct cn_ctl_server *server)
{
    struct cn_error err;
    struct cn_buf text;
    int status = CN_CTL_FINE;

    cn_buf_init(&text, 0);
    if (cn_ctl_environments(server->http, options, &text, &err))
        status = fail(options, &err);
    put_out(&text);
    return status;
}

/* Runs a command for several nodes. */
static int
run_nodes(const struct cn_ctl_options *options)
{
    struct cn_error err;
    struct cn_buf text;
    bool wrong = false;
    int rc;

    if (options->command == CN_CTL_TOP)
        return cn_ctl_nodes_top_run(options, &err) ? fail(options, &err) : CN_CTL_FINE;
    cn_buf_init(&text, 0);
    rc = cn_ctl_nodes_command(options, &text, &wrong, &err);
    put_out(&text);
    if (rc)
        return fail(options, &err);
    return wrong ? CN_CTL_WRONG : CN_CTL_FINE;
}

static int
run_server_command(const struct cn_ctl_options *options)
{
    struct cn_ctl_server server = {.http = cn_ctl_http_create(),
                                   .management = options->management,
                                   .metrics = options->metrics};
    struct cn_error err;
    int status = CN_CTL_FINE;

    if (cn_ctl_is_verb(options->command))
        status = run_verb(options, &server);
    else if (options->command == CN_CTL_SEQ)
        status = run_seq(options, &server);
    else if (options->command == CN_CTL_STORE)
        status = run_store(options, &server);
    else if (options->command == CN_CTL_ENVIRONMENTS)
        status = run_environments(options, &server);
    else if (options->command == CN_CTL_DOCTOR)
        status = run_doctor(options, &server);
    else if (options->command != CN_CTL_TOP)
        status = run_show(options, &server);
    else if (cn_ctl_top(&server, options->once, options->json, &err))
        status = fail(options, &err);
    cn_ctl_http_destroy(server.http);
    return status;
}

int
cn_ctl_run(int argc, char **argv)
{
    struct cn_ctl_options options;
    struct cn_error err;

    if (cn_ctl_options_parse(argc, argv, &options, &err)) {
        fprintf(stderr, "continuo-ctl: error: %s\n", err.message);
        return CN_CTL_USAGE;
    }
    switch (options.command) {
    case CN_CTL_HELP:
        cn_ctl_help(stdout);
        return CN_CTL_FINE;
    case CN_CTL_SEQ_HELP:
        cn_ctl_seq_help(stdout);
        return CN_CTL_FINE;
    case CN_CTL_STORE_HELP:
        cn_ctl_store_help(stdout);
        return CN_CTL_FINE;
    case CN_CTL_VERB_HELP:
        cn_ctl_verb_help(options.about, stdout);
        return CN_CTL_FINE;
    case CN_CTL_PLAIN_HELP:
        cn_ctl_plain_help(options.about, stdout);
        return CN_CTL_FINE;
    case CN_CTL_VERSION:
        printf("continuo-ctl %s\n", CN_VERSION);
        return CN_CTL_FINE;
    case CN_CTL_MAN:
        cn_ctl_man(stdout);
        return CN_CTL_FINE;
    case CN_CTL_COMPLETIONS:
        cn_ctl_completions(options.shell, stdout);
        return CN_CTL_FINE;
    default:
        if (options.all || (options.nodes && options.command != CN_CTL_SEQ))
            return run_nodes(&options);
        return run_server_command(&options);
    }
}
