/* cn_fuzz: core doctor ctl */
/* tests/fuzz/ctl_answers_fuzz.c - any bytes as what a server answers to continuo-ctl.
 *
 * The first byte says which answer it is; the rest is a model's description, the metrics page, the
 * environments, the nodes, or a sequence. What was read is shown in each form. Besides memory
 * errors: nothing that is shown for people has a control character that a terminal would obey. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "ctl/doctor_show.h"
#include "ctl/environment_commands.h"
#include "ctl/nodes/many.h"
#include "ctl/seq.h"
#include "ctl/show.h"
#include "doctor/view.h"
#include "tests/fuzz/fuzz.h"

#define SERVER "http://127.0.0.1:8081"

static void
check_plain(struct cn_buf *out)
{
    for (size_t i = 0; i < out->len; i++)
        cn_assert(out->data[i] == '\n' ||
                  ((unsigned char)out->data[i] >= 32 && out->data[i] != 127));
    cn_buf_reset(out);
}

static void
show_view(struct cn_ctl_view *view, struct cn_buf *out)
{
    struct cn_ctl_diagnosis diagnosis;

    cn_ctl_diagnosis_init(&diagnosis);
    cn_ctl_diagnose(&diagnosis, view, SERVER, 1700000000000);
    cn_ctl_diagnosis_show(&diagnosis, view, SERVER, out);
    check_plain(out);
    cn_ctl_show_status(view, SERVER, out);
    cn_ctl_show_models(view, out);
    cn_ctl_show_workers(view, out);
    cn_ctl_show_top(view, view, &diagnosis, SERVER, out);
    check_plain(out);
    cn_ctl_json_status(view, SERVER, out);
    cn_ctl_json_models(view, out);
    cn_ctl_json_workers(view, out);
    cn_ctl_json_top(view, view, SERVER, out);
    cn_ctl_diagnosis_json(&diagnosis, SERVER, out);
    cn_ctl_diagnosis_fini(&diagnosis);
}

static void
take_view(struct cn_str answer, bool is_metrics, struct cn_buf *out)
{
    struct cn_error err = {0};
    struct cn_ctl_view view;

    cn_ctl_view_init(&view);
    if (is_metrics)
        cn_ctl_view_add_metrics(&view, answer);
    else if (cn_ctl_view_add(&view, answer, NULL, &err))
        cn_assert(err.code == CN_E_PROTOCOL && err.message[0]);
    show_view(&view, out);
    cn_ctl_view_fini(&view);
}

static void
take_nodes(struct cn_str answer, struct cn_buf *out)
{
    struct cn_ctl_node node = {.management = SERVER,
                               .name = SERVER,
                               .instance = "",
                               .state = "",
                               .version = "",
                               .metrics = "",
                               .answered = true};
    struct cn_ctl_nodes nodes = {.nodes = &node, .n = 1};

    cn_ctl_view_init(&node.view);
    cn_ctl_node_take(&node, answer, &nodes.store);
    cn_ctl_nodes_status(&nodes, false, out);
    cn_ctl_nodes_top(&nodes, &nodes, false, out);
    check_plain(out);
    cn_ctl_nodes_status(&nodes, true, out);
    cn_ctl_nodes_top(&nodes, &nodes, true, out);
    cn_ctl_view_fini(&node.view);
}

static void
take_sequences(struct cn_str answer, struct cn_buf *out)
{
    json_t *value = json_loadb(answer.ptr, answer.len, 0, NULL);

    if (json_is_object(value)) {
        cn_ctl_seq_show(value, out);
        cn_ctl_seq_list(value, out);
        check_plain(out);
    }
    json_decref(value);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str answer;
    struct cn_buf out;

    if (size == 0)
        return 0;
    answer = (struct cn_str){(const char *)data + 1, size - 1};
    cn_buf_init(&out, 0);
    switch (data[0] % 5) {
    case 0:
    case 1:
        take_view(answer, data[0] % 5 == 1, &out);
        break;
    case 2:
        if (cn_ctl_environments_show(answer, false, SERVER, &out, NULL) == 0)
            check_plain(&out);
        break;
    case 3:
        take_nodes(answer, &out);
        break;
    default:
        take_sequences(answer, &out);
    }
    cn_buf_fini(&out);
    return 0;
}
