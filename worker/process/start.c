/* worker/process/start.c - the start of a worker: waits for LOAD, opens the model (or takes over
 * the zygote's) and the store. One thread.
 *
 * There are three ways through cn_worker_start. A plain worker reads LOAD, opens the model and then
 * the store. A zygote reads LOAD, opens the model, sends LOADED and forks until the server is gone.
 * A worker that it forks returns from the middle of that: it has the model open, reads a LOAD of
 * its own, which must name the same model, and opens the store. The store comes last, because a
 * process must not be forked while it has LMDB open.
 */
#include <string.h>

#include "config/model/batching.h"
#include "config/model/model_config.h"
#include "config/model/model_state.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"
#include "handlers/tensor_state.h"
#include "worker/process/config_json.h"
#include "worker/process/fork.h"
#include "worker/process/heap.h"
#include "worker/stream_input/stream_layer.h"
#include "worker/worker_priv.h"

#define CHECK_EVERY_MS 60000 /* any value will do: the socket wakes it */

static int
config_read(const struct cn_load *load, struct cn_buf *json, struct cn_error *err)
{
    struct cn_buf path;
    char *text;
    int rc;

    if (!load->config_file[0])
        return 0;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", load->model_dir, load->config_file);
    text = cn_buf_take(&path, NULL);
    rc = cn_config_json(text, json, err);
    cn_free(text);
    return rc;
}

/* Reads the model's YAML: what it declares of its tensors into worker->io, and its settings. */
static int
io_read(struct cn_worker *worker, struct cn_model_config *config, struct cn_error *err)
{
    const struct cn_load *load = &worker->load;
    struct cn_yaml_doc *doc;
    struct cn_buf path;
    int rc;

    if (!load->config_file[0])
        return 0;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", load->model_dir, load->config_file);
    cn_buf_append(&path, "", 1);
    rc = cn_yaml_parse_file_as(path.data, load->config_file, &doc, err);
    cn_buf_fini(&path);
    if (rc != 0)
        return rc;
    rc = cn_model_io_parse(doc, &worker->io, err);
    if (rc == 0)
        rc = cn_batching_parse(doc, worker->load.model_name, worker->io, err);
    if (rc == 0) /* the server has checked it, and logged its warnings */
        rc = cn_model_config_apply(config, doc, NULL, NULL, err);
    cn_yaml_destroy(doc);
    worker->load.typed = worker->io != NULL;
    if (rc == 0 && load->stateful && worker->io && worker->io->state.n > 0)
        worker->load.state = &worker->io->state;
    return rc;
}

/* Lays tensor_state.h over the runtime, for a model that declares its state as tensors. Reads the
 * files of the archive that have the tensors' first values. */
static int
tensor_state_open(struct cn_worker *worker, struct cn_error *err)
{
    const struct cn_state_specs *specs = worker->load.state;
    struct cn_buf *files = cn_alloc(sizeof(*files) * specs->n);
    int rc = 0;

    for (uint32_t i = 0; i < specs->n; i++)
        cn_buf_init(&files[i], 0);
    for (uint32_t i = 0; rc == 0 && i < specs->n; i++)
        if (specs->items[i].init == CN_STATE_NONE)
            rc = cn_fail(err, CN_E_CONFIG,
                         "state: '%s' has init none, which only TorchScript models support",
                         specs->items[i].input.ptr);
    for (uint32_t i = 0; rc == 0 && i < specs->n; i++)
        if (specs->items[i].init == CN_STATE_FILE)
            rc = cn_model_state_read_file(&specs->items[i], worker->load.model_dir, &files[i], err);
    if (rc == 0) {
        cn_tensor_state_attach(worker->rt, &worker->load, files);
        return 0;
    }
    for (uint32_t i = 0; i < specs->n; i++)
        cn_buf_fini(&files[i]);
    cn_free(files);
    return rc;
}

/* Sends PROGRESS at once, because what follows may take long. If the server is gone, the next read
 * notices it. */
static void
progress_send(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    struct cn_worker *worker = ctx;

    cn_frame_put_progress(&worker->channel.out,
                          &(struct cn_progress){done, total, cn_str_from(what)});
    cn_channel_flush(&worker->channel, NULL);
}

static int
model_open(struct cn_worker *worker, cn_runtime_find_fn find, struct cn_error *err)
{
    const struct cn_load *load = &worker->load;
    const struct cn_runtime_ops *ops = find(load->runtime);
    struct cn_model_config config;
    struct cn_buf json;
    int rc = 0;

    cn_model_config_init(&config);
    if (!ops)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "model %s needs the runtime \"%s\", which this worker does not have: it is "
                       "the worker of other models, or of another version of the server",
                       load->model_name, load->runtime);
    if (load->zygote && !ops->check_zygote)
        rc = cn_fail(err, CN_E_UNIMPLEMENTED, "models of the runtime %s cannot be forked",
                     ops->name);
    else if (load->zygote)
        rc = ops->check_zygote(load, err);
    if (rc != 0)
        return rc;
    worker->load.progress = progress_send;
    worker->load.progress_ctx = worker;
    cn_buf_init(&json, 0);
    rc = config_read(load, &json, err);
    if (rc == 0)
        rc = io_read(worker, &config, err);
    if (rc == 0)
        rc = ops->open(load, cn_buf_str(&json), &worker->rt, err);
    cn_buf_fini(&json);
    if (rc == 0 && load->state && !worker->rt->keeps_state_tensors)
        rc = tensor_state_open(worker, err);
    if (rc == 0 && config.stream_input != CN_STREAM_NONE)
        cn_stream_layer_attach(worker->rt, load, &config, worker->io);
    if (rc == 0 && load->zygote)
        rc = cn_fork_check(err);
    return rc;
}

/* Opens the store. A zygote does not do this: each of its workers opens the store itself. */
static int
states_open(struct cn_worker *worker, struct cn_error *err)
{
    const struct cn_load *load = &worker->load;
    int rc;

    if (load->stateful) {
        if ((rc = cn_states_open(&worker->states, load, worker->rt, err)) != 0)
            return rc;
        worker->stateful = true;
    }
    cn_batch_init(&worker->batch, load);
    return 0;
}

/* Waits for LOAD, and sets what it says about the process as a whole. Returns 0, with `eof` when
 * the server is gone, or an error. */
static int
load_read(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_frame frame;
    struct cn_block *block;
    int rc;

    while ((rc = cn_channel_next(&worker->channel, &frame, &block, err)) == 0) {
        rc = cn_channel_read(&worker->channel, CHECK_EVERY_MS, err);
        if (rc != 0 || worker->channel.eof)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (frame.type != CN_FRAME_LOAD)
        return cn_fail(err, CN_E_PROTOCOL, "the server sent a frame of type %d before LOAD",
                       frame.type);
    if ((rc = cn_frame_get_load(&frame, &worker->load_arena, &worker->load, err)) != 0)
        return rc;
    cn_tuning_set(worker->load.tuning);
    cn_heap_keep();
    if (worker->load.batch_size < 1 || worker->load.batch_size > 65536)
        return cn_fail(err, CN_E_PROTOCOL, "LOAD has the batch_size %llu; it must be 1 to 65536",
                       (unsigned long long)worker->load.batch_size);
    return 0;
}

/* Reads the LOAD of a forked worker, which must name the model that the zygote has opened. */
static int
load_again(struct cn_worker *worker, struct cn_error *err)
{
    const struct cn_load of_zygote = worker->load;
    int rc = load_read(worker, err);

    if (rc != 0 || worker->channel.eof)
        return rc;
    if (worker->load.zygote || strcmp(of_zygote.model_dir, worker->load.model_dir) != 0 ||
        strcmp(of_zygote.handler, worker->load.handler) != 0 ||
        of_zygote.batch_size != worker->load.batch_size ||
        of_zygote.stateful != worker->load.stateful)
        return cn_fail(err, CN_E_PROTOCOL, "LOAD names a model other than the zygote's");
    return 0;
}

int
cn_worker_send_loaded(struct cn_worker *worker, int code, const char *message, struct cn_error *err)
{
    const bool good = code == 0 && worker->rt;
    struct cn_loaded loaded = {code,
                               cn_str_from(message),
                               cn_str_from(good ? worker->rt->device : ""),
                               cn_str_from(good ? worker->rt->warning : ""),
                               cn_str_from(worker->walls.standing),
                               cn_str_from(worker->walls.lacking)};

    cn_frame_put_loaded(&worker->channel.out, &loaded);
    return cn_channel_flush(&worker->channel, err);
}

static void
add_file(void *files, const char *path)
{
    cn_buf_append(files, path, strlen(path) + 1);
}

/* Raises the walls. Before that the runtime names the files that it reads besides the model. */
static int
walls_raise(struct cn_worker *worker, cn_runtime_find_fn find, struct cn_error *err)
{
    const struct cn_runtime_ops *ops = find(worker->load.runtime);
    struct cn_buf files;
    int rc;

    cn_buf_init(&files, 0);
    if (ops && ops->prepare)
        ops->prepare(&worker->load, add_file, &files);
    worker->load.runtime_files = cn_buf_str(&files);
    rc = cn_walls_raise(&worker->load, &worker->walls, err);
    worker->load.runtime_files = (struct cn_str){NULL, 0};
    cn_buf_fini(&files);
    return rc;
}

int
cn_worker_start(struct cn_worker *worker, cn_runtime_find_fn find, char *title,
                struct cn_error *err)
{
    int rc = load_read(worker, err);

    if (rc != 0 || worker->channel.eof)
        return rc;
    rc = walls_raise(worker, find, err);
    if (rc == 0 && (rc = model_open(worker, find, err)) == 0 && worker->load.zygote) {
        rc = cn_worker_send_loaded(worker, 0, worker->rt->ops->describe(worker->rt), err);
        if (rc == 0)
            rc = cn_zygote_serve(worker, title, err);
        if (rc <= 0)
            return rc;
        rc = load_again(worker, err);
        if (rc != 0 || worker->channel.eof)
            return rc;
    }
    cn_busy_wait_limit(&worker->channel.busy_wait, (uint32_t)worker->load.busy_wait_us);
    if (rc == 0 && worker->rt->ops->serve)
        rc = worker->rt->ops->serve(worker->rt, &worker->load, err);
    if (rc == 0)
        rc = states_open(worker, err);
    if (rc != 0)
        worker->told_why = cn_worker_send_loaded(worker, err->code, err->message, NULL) == 0;
    return rc;
}
