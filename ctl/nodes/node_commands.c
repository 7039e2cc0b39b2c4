/* ctl/nodes/node_commands.c - runs a command for several nodes.
 *
 * Commands with --all or --nodes lead here. The exit status is wrong if a node does not answer or
 * is not healthy, so that a script can wait for all of them. Without these options the doctor of
 * one server still asks for the list of nodes, and tells what concerns this node
 * (cn_ctl_nodes_diagnose_self). */
#include "ctl/nodes/node_commands.h"

#include <string.h>

#include "ctl/nodes/many.h"
#include "ctl/top.h"

int
cn_ctl_nodes_command(const struct cn_ctl_options *options, struct cn_buf *out, bool *wrong,
                     struct cn_error *err)
{
    struct cn_ctl_nodes *nodes = cn_ctl_nodes_read(options, err);

    if (err->code == 0 && options->command == CN_CTL_DOCTOR) {
        *wrong = cn_ctl_nodes_doctor(nodes, options->json, out) > 0;
    } else if (err->code == 0) {
        cn_ctl_nodes_status(nodes, options->json, out);
        *wrong = !cn_ctl_nodes_healthy(nodes);
    }
    cn_ctl_nodes_free(nodes);
    return err->code;
}

/* --- top */

static int
read_frame(void *ctx, void **out, struct cn_error *err)
{
    struct cn_ctl_nodes *nodes = cn_ctl_nodes_read(ctx, err);

    if (err->code) {
        cn_ctl_nodes_free(nodes);
        nodes = NULL;
    }
    *out = nodes;
    return err->code;
}

static void
drop_frame(void *frame)
{
    cn_ctl_nodes_free(frame);
}

static void
show_frame(void *ctx, const void *before, const void *now, bool json, struct cn_buf *text)
{
    (void)ctx;
    cn_ctl_nodes_top(before, now, json, text);
}

int
cn_ctl_nodes_top_run(const struct cn_ctl_options *options, struct cn_error *err)
{
    struct cn_ctl_options own = *options;
    const struct cn_ctl_top_source source = {
        .ctx = &own, .read = read_frame, .drop = drop_frame, .show = show_frame};

    return cn_ctl_top_run(&source, options->once, options->json, err);
}

/* --- one node */

void
cn_ctl_nodes_diagnose_self(const struct cn_ctl_server *server, struct cn_ctl_diagnosis *diagnosis)
{
    struct cn_ctl_node node = {.management = server->management, .state = "", .version = ""};
    struct cn_error err;
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_ctl_view_init(&node.view);
    if (cn_ctl_http_get(server->http, server->management, "/nodes", &body, &err) == 0) {
        cn_ctl_node_take(&node, cn_buf_str(&body), NULL);
        cn_ctl_node_diagnose(diagnosis, &node);
    }
    cn_ctl_view_fini(&node.view);
    cn_buf_fini(&body);
}

/* --- any node */

/* Finds the first node of the list that answers. Only a node that cannot be reached leads to the
 * next one: any other error, such as a wrong token, would be the same there. */
int
cn_ctl_nodes_any(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                 struct cn_buf *address, struct cn_error *err)
{
    const char **addresses;
    struct cn_arena arena;
    struct cn_buf body;
    unsigned n = 0;
    int rc;

    cn_arena_init(&arena);
    cn_buf_init(&body, 0);
    rc = cn_ctl_nodes_split(&arena, options->nodes, &addresses, &n, err);
    if (rc == 0)
        rc = CN_E_UNAVAILABLE;
    for (unsigned i = 0; rc == CN_E_UNAVAILABLE && i < n; i++) {
        err->code = 0;
        rc = cn_ctl_http_get(http, addresses[i], "/models?limit=1", &body, err);
        if (rc == 0)
            cn_buf_append(address, addresses[i], strlen(addresses[i]) + 1);
    }
    cn_buf_fini(&body);
    cn_arena_fini(&arena);
    return rc;
}
