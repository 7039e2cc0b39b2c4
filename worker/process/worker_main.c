/* worker/process/worker_main.c - continuo-worker, started by the server with a socket as descriptor
 * 3. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "handlers/onnx/onnx_runtime.h"
#include "handlers/torchscript/torch_runtime.h"
#include "proto/frame.h"
#include "worker/process/call_filter.h"
#include "worker/process/confine.h"
#include "worker/process/file_wall.h"
#include "worker/worker.h"

/* Descriptor 4 is the server's lock of its state folder: it is only kept open, so that a new server
 * knows that a worker of the old one still lives. */
#define FIRST_FOREIGN_FD 5

static int
usage(FILE *out)
{
    fputs(
        "usage: continuo-worker --check-store DIR   verify every record of a store\n"
        "       continuo-worker --mend-store DIR    mend what is damaged, then verify every "
        "record\n"
        "       continuo-worker --accept-store DIR  forget sequences that a damaged store lost\n"
        "       continuo-worker --version\n\n"
        "A worker is the process in which a model's code runs. The server starts its workers by\n"
        "itself; the options are for looking at states. DIR is the folder that has the states of\n"
        "one version of a model, such as continuo-state/models/counter/1.0; no server may use it\n"
        "meanwhile.\n",
        out);
    return out == stdout ? 0 : 2;
}

static const struct cn_runtime_ops *
find_runtime(const char *name)
{
    if (name && strcmp(name, cn_torch_runtime_ops.name) == 0)
        return &cn_torch_runtime_ops;
    if (name && strcmp(name, cn_onnx_runtime_ops.name) == 0)
        return &cn_onnx_runtime_ops;
    return cn_runtime_find(name);
}

/* The code of a model may have written into the folder of its store. A link there must not lead to
 * the store of another model, and whoever makes a damaged file do more than that is to find itself
 * behind the walls of a worker. Where the system cannot build one of them, the store is checked all
 * the same. */
static void
stay_in(const char *dir)
{
    const struct cn_load load = {.store_dir = dir};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return;
    cn_file_wall_build(&load);
    cn_call_filter_install(&(struct cn_call_rules){.network = false});
}

int
main(int argc, char **argv)
{
    const char *word = argc == 3 ? argv[1] : "";
    const bool checks = strcmp(word, "--check-store") == 0;
    const bool mends = strcmp(word, "--mend-store") == 0;

    cn_worker_log_begin();
    if (checks || mends || strcmp(word, "--accept-store") == 0) {
        stay_in(argv[2]);
        return checks || mends ? cn_worker_check_store(argv[2], mends)
                               : cn_worker_accept_store(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("continuo-worker " CN_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    /* Other arguments are only for who reads `ps`: they name the model and the worker. */
    if (!cn_worker_has_socket())
        return usage(stderr);
    if (cn_worker_confine() != 0)
        return 1;
    close_range(FIRST_FOREIGN_FD, ~0u, 0);
    return cn_worker_run(CN_WORKER_FD, find_runtime, argc > 1 ? argv[1] : NULL);
}
