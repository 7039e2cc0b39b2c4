/* bench/grpc-bench.c - sends load to the gRPC services, and has an echo server to compare with.
 *
 *   grpc-bench echo                      a server of the bare gRPC C core that sends requests back;
 *                                        prints "port N" and serves until it is killed
 *   grpc-bench unary|bidi TARGET MODEL   --calls N in flight (bidi: streams, one message each),
 *                                        --channels N, --seconds S, --data BYTES, --processes N;
 *                                        checks each answer of a counter (model "echo": only that
 *                                        there is one)
 *   grpc-bench infer TARGET MODEL        the same by ModelInfer of the v2 protocol, with an FP32
 *                                        tensor of BYTES, which the answer must end with; with
 *                                        --sequences each call in flight has a sequence of its own,
 *                                        and an answer only needs the status OK
 *
 * One completion queue and one thread in each process. Prints one line of JSON; exit 1 if anything
 * was wrong, and 3, without figures of speed, if this tool was slower than the server
 * (bench/load/tally.h).
 */
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/load/tally.h"

#define UNARY "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
#define BIDI "/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions2"
#define INFER "/inference.GRPCInferenceService/ModelInfer"

enum kind { KIND_UNARY, KIND_BIDI, KIND_INFER, N_KINDS };

static const char *const methods[N_KINDS] = {UNARY, BIDI, INFER};

struct tag {
    void (*fn)(void *ctx, bool ok);
    void *ctx;
};

static grpc_completion_queue *queue;

static void
die(const char *why)
{
    fprintf(stderr, "grpc-bench: %s\n", why);
    exit(1);
}

static double
now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
start(grpc_call *call, const grpc_op *ops, size_t n, struct tag *tag)
{
    if (grpc_call_start_batch(call, ops, n, tag, NULL) != GRPC_CALL_OK)
        die("start_batch");
}

/* --- the echo server */

struct echo {
    enum kind kind;
    grpc_call *call;
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    grpc_byte_buffer *bytes;
    struct tag accepted, read, wrote, done;
    int cancelled;
    bool head_sent;
};

static grpc_server *server;
static void *registered[N_KINDS];

static void ask(enum kind kind);

static void
echo_free(void *ctx, bool ok)
{
    struct echo *echo = ctx;

    (void)ok;
    if (echo->bytes)
        grpc_byte_buffer_destroy(echo->bytes);
    grpc_metadata_array_destroy(&echo->metadata);
    grpc_call_unref(echo->call);
    free(echo);
}

static void
echo_finish(struct echo *echo, bool with_message)
{
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_MESSAGE}};

    ops[1].data.recv_close_on_server.cancelled = &echo->cancelled;
    ops[3].data.send_message.send_message = echo->bytes;
    start(echo->call, echo->head_sent ? ops + 1 : ops,
          3 - (echo->head_sent ? 1 : 0) + (with_message ? 1 : 0), &echo->done);
}

static void
echo_read(struct echo *echo)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    if (echo->bytes)
        grpc_byte_buffer_destroy(echo->bytes);
    echo->bytes = NULL;
    op.data.recv_message.recv_message = &echo->bytes;
    start(echo->call, &op, 1, &echo->read);
}

static void
echo_got(void *ctx, bool ok)
{
    struct echo *echo = ctx;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_MESSAGE}, {.op = GRPC_OP_SEND_INITIAL_METADATA}};

    if (!ok || !echo->bytes) {
        echo_finish(echo, false);
        return;
    }
    ops[0].data.send_message.send_message = echo->bytes;
    start(echo->call, ops, echo->head_sent ? 1 : 2, &echo->wrote);
    echo->head_sent = true;
}

static void
echo_wrote(void *ctx, bool ok)
{
    if (ok)
        echo_read(ctx);
    else
        echo_finish(ctx, false);
}

static void
echo_accepted(void *ctx, bool ok)
{
    struct echo *echo = ctx;

    if (!ok)
        return;
    ask(echo->kind);
    if (echo->kind == KIND_BIDI)
        echo_read(echo);
    else
        echo_finish(echo, echo->bytes != NULL);
}

static void
ask(enum kind kind)
{
    struct echo *echo = calloc(1, sizeof(*echo));

    echo->kind = kind;
    grpc_metadata_array_init(&echo->metadata);
    echo->accepted = (struct tag){echo_accepted, echo};
    echo->read = (struct tag){echo_got, echo};
    echo->wrote = (struct tag){echo_wrote, echo};
    echo->done = (struct tag){echo_free, echo};
    if (grpc_server_request_registered_call(
            server, registered[kind], &echo->call, &echo->deadline, &echo->metadata,
            kind == KIND_BIDI ? NULL : &echo->bytes, queue, queue, &echo->accepted) != GRPC_CALL_OK)
        die("request_registered_call");
}

static void
begin_echo(void)
{
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    grpc_arg any_size = {.type = GRPC_ARG_INTEGER,
                         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH};
    grpc_channel_args args = {1, &any_size};
    int i;

    any_size.value.integer = -1;
    server = grpc_server_create(&args, NULL);
    for (i = 0; i < N_KINDS; i++)
        registered[i] = grpc_server_register_method(
            server, methods[i], NULL,
            i == KIND_BIDI ? GRPC_SRM_PAYLOAD_NONE : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    grpc_server_register_completion_queue(server, queue, NULL);
    printf("port %d\n", grpc_server_add_http2_port(server, "127.0.0.1:0", plain));
    fflush(stdout);
    grpc_server_start(server);
    for (i = 0; i < 8 * N_KINDS; i++)
        ask((enum kind)(i % N_KINDS));
}

/* --- the client */

struct slot {
    grpc_channel *channel;
    grpc_call *call;
    enum kind kind;
    char id[48];
    grpc_metadata sequence; /* sent with --sequences */
    uint64_t steps;
    grpc_metadata_array head, tail;
    grpc_status_code status;
    grpc_slice details;
    grpc_byte_buffer *request, *response;
    struct tag answered, over;
    double began_s;
};

static struct {
    const char *model;
    bool is_counter, sequences;
    size_t data_bytes;
    grpc_slice infer; /* a ModelInferRequest; the same for each call */
    double seconds, end_s;
    enum kind kind;
    const char *target;
    unsigned n_calls, n_channels, n_processes;
    unsigned live;
    struct tally *tally;
} load = {.data_bytes = 1};

static char *
put_field(char *at, char tag, const char *bytes, size_t len)
{
    size_t left = len;

    *at++ = tag;
    for (; left >= 0x80; left >>= 7)
        *at++ = (char)(left | 0x80);
    *at++ = (char)left;
    memcpy(at, bytes, len);
    return at + len;
}

/* Makes a ModelInferRequest: model_name, inputs {name, datatype, shape}, raw_input_contents. */
static grpc_slice
make_infer(void)
{
    char tensor[64], shape[8], *end = tensor, *at = shape, *all = malloc(load.data_bytes + 512);
    char *data = malloc(load.data_bytes + 1);
    size_t n = load.data_bytes / 4;
    grpc_slice slice;

    if (load.sequences)
        *at++ = 1; /* models with sequences have a batch dimension */
    for (; n >= 0x80; n >>= 7)
        *at++ = (char)(n | 0x80);
    *at++ = (char)n;
    memset(data, 0x3f, load.data_bytes); /* 0.747 as FP32 */
    end = put_field(end, 0x0a, "FP32", 4);
    end = put_field(end, 0x12, "FP32", 4);
    end = put_field(end, 0x1a, shape, (size_t)(at - shape));
    at = put_field(all, 0x0a, load.model, strlen(load.model));
    at = put_field(at, 0x2a, tensor, (size_t)(end - tensor));
    at = put_field(at, 0x3a, data, load.data_bytes);
    slice = grpc_slice_from_copied_buffer(all, (size_t)(at - all));
    free(all);
    free(data);
    return slice;
}

/* Makes a PredictionsRequest: model_name, input{"data": one or many bytes}, sequence_id. */
static grpc_byte_buffer *
make_request(const struct slot *slot)
{
    size_t room = load.data_bytes + 256;
    char *entry = malloc(room), *all = malloc(room + 256), *data = malloc(load.data_bytes + 1);
    char *entry_end, *end;
    grpc_slice slice;
    grpc_byte_buffer *bytes;

    memset(data, '1', load.data_bytes);
    entry_end = put_field(put_field(entry, 0x0a, "data", 4), 0x12, data, load.data_bytes);
    end = put_field(all, 0x0a, load.model, strlen(load.model));
    end = put_field(end, 0x1a, entry, (size_t)(entry_end - entry));
    if (load.is_counter)
        end = put_field(end, 0x22, slot->id, strlen(slot->id));
    slice = grpc_slice_from_copied_buffer(all, (size_t)(end - all));
    bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    free(entry);
    free(all);
    free(data);
    return bytes;
}

/* Checks the tensor, which is the last field of request and response. */
static bool
ends_with_tensor(const struct slot *slot)
{
    const uint8_t *sent = GRPC_SLICE_START_PTR(load.infer) + GRPC_SLICE_LENGTH(load.infer);
    grpc_byte_buffer_reader reader;
    grpc_slice all;
    bool same;

    grpc_byte_buffer_reader_init(&reader, slot->response);
    all = grpc_byte_buffer_reader_readall(&reader);
    same = GRPC_SLICE_LENGTH(all) >= load.data_bytes &&
           memcmp(GRPC_SLICE_START_PTR(all) + GRPC_SLICE_LENGTH(all) - load.data_bytes,
                  sent - load.data_bytes, load.data_bytes) == 0;
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return same;
}

/* Checks the prediction, which is the last field of the message. */
static bool
is_right(const struct slot *slot)
{
    char expected[24], got[24];
    grpc_byte_buffer_reader reader;
    grpc_slice all;
    size_t len, n = (size_t)snprintf(expected, sizeof(expected), "%llu",
                                     (unsigned long long)slot->steps + 1);

    if (!slot->response)
        return false;
    if (slot->kind == KIND_INFER)
        return load.sequences || ends_with_tensor(slot);
    if (!load.is_counter)
        return grpc_byte_buffer_length(slot->response) >= load.data_bytes;
    grpc_byte_buffer_reader_init(&reader, slot->response);
    all = grpc_byte_buffer_reader_readall(&reader);
    len = GRPC_SLICE_LENGTH(all);
    if (len < n + 2) {
        grpc_slice_unref(all);
        return false;
    }
    memcpy(got, GRPC_SLICE_START_PTR(all) + len - n, n);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return memcmp(got, expected, n) == 0;
}

static void
count(struct slot *slot, bool right)
{
    histogram_add(&load.tally->latency, (uint64_t)((now_s() - slot->began_s) * 1e6));
    if (right)
        load.tally->steps++;
    else
        load.tally->errors++;
    slot->steps++;
    grpc_byte_buffer_destroy(slot->request);
    if (slot->response)
        grpc_byte_buffer_destroy(slot->response);
    slot->request = slot->response = NULL;
}

static void
new_call(struct slot *slot)
{
    grpc_slice method = grpc_slice_from_static_string(methods[slot->kind]);

    slot->call = grpc_channel_create_call(slot->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                          method, NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_metadata_array_init(&slot->head);
    grpc_metadata_array_init(&slot->tail);
    slot->details = grpc_empty_slice();
}

static void
end_call(struct slot *slot)
{
    grpc_metadata_array_destroy(&slot->head);
    grpc_metadata_array_destroy(&slot->tail);
    grpc_slice_unref(slot->details);
    grpc_call_unref(slot->call);
}

static void
status_op(struct slot *slot, grpc_op *op)
{
    op->op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    op->data.recv_status_on_client.trailing_metadata = &slot->tail;
    op->data.recv_status_on_client.status = &slot->status;
    op->data.recv_status_on_client.status_details = &slot->details;
}

static void
send_unary(struct slot *slot)
{
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE}};

    new_call(slot);
    slot->began_s = now_s();
    if (load.sequences) {
        ops[0].data.send_initial_metadata.count = 1;
        ops[0].data.send_initial_metadata.metadata = &slot->sequence;
    }
    slot->request =
        slot->kind == KIND_INFER ? grpc_raw_byte_buffer_create(&load.infer, 1) : make_request(slot);
    ops[1].data.send_message.send_message = slot->request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &slot->head;
    ops[4].data.recv_message.recv_message = &slot->response;
    status_op(slot, &ops[5]);
    start(slot->call, ops, 6, &slot->answered);
}

static void
send_bidi(struct slot *slot)
{
    /* A stream is never opened a second time, so it waits until its channel is connected. */
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_RECV_MESSAGE},
        {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY},
        {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    bool first = slot->steps == 0;

    slot->began_s = now_s();
    slot->request = make_request(slot);
    ops[0].data.send_message.send_message = slot->request;
    ops[1].data.recv_message.recv_message = &slot->response;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &slot->head;
    start(slot->call, ops, first ? 4 : 2, &slot->answered);
}

static void
on_over(void *ctx, bool ok)
{
    (void)ok;
    end_call(ctx);
    load.live--;
}

static void
on_answered(void *ctx, bool ok)
{
    struct slot *slot = ctx;
    bool right =
        ok && is_right(slot) && (slot->kind == KIND_BIDI || slot->status == GRPC_STATUS_OK);

    count(slot, right);
    if (slot->kind != KIND_BIDI)
        end_call(slot);
    if (right && now_s() < load.end_s) {
        if (slot->kind == KIND_BIDI)
            send_bidi(slot);
        else
            send_unary(slot);
    } else if (slot->kind == KIND_BIDI) {
        grpc_op ops[2] = {{.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}};

        status_op(slot, &ops[1]);
        start(slot->call, ops, 2, &slot->over);
    } else {
        load.live--;
    }
}

static void
begin_load(unsigned process, unsigned n_calls, unsigned n_channels)
{
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_arg own[] = {
        {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t) "grpc.use_local_subchannel_pool"},
        {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH},
    };
    grpc_channel_args args = {2, own};
    grpc_channel **channels = calloc(n_channels, sizeof(grpc_channel *));
    unsigned i;

    own[0].value.integer = 1;
    own[1].value.integer = -1;
    for (i = 0; i < n_channels; i++)
        channels[i] = grpc_channel_create(load.target, plain, &args);
    for (i = 0; i < n_calls; i++) {
        struct slot *slot = calloc(1, sizeof(*slot));

        slot->channel = channels[i % n_channels];
        slot->kind = load.kind;
        slot->answered = (struct tag){on_answered, slot};
        slot->over = (struct tag){on_over, slot};
        snprintf(slot->id, sizeof(slot->id), "bench-%lx-%u-%u", (unsigned long)(now_s() * 1e6),
                 process, i);
        slot->sequence.key = grpc_slice_from_static_string("continuo-sequence-id");
        slot->sequence.value = grpc_slice_from_static_string(slot->id);
        load.live++;
        if (load.kind == KIND_BIDI) {
            new_call(slot);
            send_bidi(slot);
        } else {
            send_unary(slot);
        }
    }
}

static const char *
option(int argc, char **argv, const char *name, const char *otherwise)
{
    int i;

    for (i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return otherwise;
}

static unsigned
number_option(int argc, char **argv, const char *name, const char *otherwise)
{
    int value = atoi(option(argc, argv, name, otherwise));

    if (value < 1 || value > 1000000) {
        fprintf(stderr, "grpc-bench: %s must be a number from 1 to 1000000\n", name);
        exit(2);
    }
    return (unsigned)value;
}

/* Takes events until nothing is in flight, or for ever. */
static void
take_events(bool for_ever)
{
    while (for_ever || load.live > 0) {
        grpc_event event =
            grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        struct tag *tag = event.tag;

        tag->fn(tag->ctx, event.success != 0);
    }
}

/* The load of one process. The library is only started here, because it does not survive a fork. */
static int
run_process(void *ctx, unsigned process, struct tally *tally)
{
    unsigned n = load.n_processes;
    struct tally_clock begin;
    double began;

    (void)ctx;
    load.tally = tally;
    grpc_init();
    queue = grpc_completion_queue_create_for_next(NULL);
    load.infer = make_infer();
    tally_wait_for_all();
    begin = tally_clock_read();
    began = now_s();
    load.end_s = began + load.seconds;
    begin_load(process, load.n_calls / n + (process < load.n_calls % n ? 1 : 0),
               load.n_channels / n > 0 ? load.n_channels / n : 1);
    take_events(false);
    tally_measured(tally, now_s() - began, begin);
    return tally->errors || tally->steps == 0;
}

static int
serve_echo(void)
{
    grpc_init();
    queue = grpc_completion_queue_create_for_next(NULL);
    begin_echo();
    take_events(true);
    return 0;
}

/* Sets `load` from the command line. */
static void
parse_options(int argc, char **argv)
{
    static const char *const words[N_KINDS] = {"unary", "bidi", "infer"};
    int kind = 0;

    while (argc >= 4 && kind < N_KINDS && strcmp(argv[1], words[kind]) != 0)
        kind++;
    if (argc < 4 || kind == N_KINDS)
        die("usage: grpc-bench echo | unary|bidi|infer TARGET MODEL [--calls N] [--channels N] "
            "[--seconds S] [--data BYTES] [--processes N] [--sequences]");
    load.kind = (enum kind)kind;
    load.target = argv[2];
    load.model = argv[3];
    load.is_counter = strcmp(load.model, "echo") != 0;
    load.data_bytes = (size_t)atol(option(argc, argv, "--data", "1"));
    load.seconds = atof(option(argc, argv, "--seconds", "3"));
    for (int i = 4; i < argc; i++)
        load.sequences |= strcmp(argv[i], "--sequences") == 0;
    load.n_calls = number_option(argc, argv, "--calls", "64");
    load.n_channels = number_option(argc, argv, "--channels", "4");
    load.n_processes = number_option(argc, argv, "--processes", "1");
    if (load.n_processes > TALLY_MAX_PROCESSES || load.n_processes > load.n_calls)
        die("--processes: each process needs a call; raise --calls");
}

int
main(int argc, char **argv)
{
    static struct tally sum;
    const char *refused;
    int rc;

    if (argc >= 2 && strcmp(argv[1], "echo") == 0)
        return serve_echo();
    parse_options(argc, argv);
    rc = tally_run(load.n_processes, run_process, NULL, &sum);
    if (rc > 1)
        return rc;
    refused = tally_verdict(&sum);
    printf("{");
    tally_print(stdout, &sum, refused);
    printf(", \"errors\": %llu}\n", (unsigned long long)sum.errors);
    return rc ? rc : refused ? TALLY_REFUSED : 0;
}
