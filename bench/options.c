/* bench/options.c - see options.h. */
#include "bench/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/load/tally.h"

static void
usage(FILE *out)
{
    fputs(
        "usage: continuo-bench [options]\n"
        "Sends steps to a counter model, checks each sum, and prints one line of JSON.\n"
        "The defaults are in parentheses.\n\n"
        "  --url URL           address of the server (http://127.0.0.1:8080)\n"
        "  --model NAME        the model, or NAME/VERSION (counter)\n"
        "  --connections N     number of connections, which stay open (16)\n"
        "  --sequences N       number of sequences, spread over the connections (one for each)\n"
        "  --duration S        how many seconds are measured (5)\n"
        "  --warmup S          how many seconds run before that, unmeasured (1)\n"
        "  --rate R            send R steps/s, at fixed times; 0: send a step when the last is "
        "answered (0)\n"
        "  --ramp R            the rate changes evenly from --rate to R while it is measured\n"
        "  --processes N       share the connections among N processes (1)\n"
        "  --any-share         print figures even if this tool was slower than the server\n"
        "  --stall-seconds S   a connection that waits longer for an answer counts as stalled (1)\n"
        "  --header NAME       the header with the sequence id (ts-request-sequence-id);\n"
        "                      TorchServe itself takes ts_request_sequence_id only\n"
        "  --prefix TEXT       beginning of all sequence ids (made of time and pid)\n"
        "  --v2                send steps as v2 JSON: input and first output are named INPUT,\n"
        "                      INT32, shape [1,1]\n"
        "  --stream PROTOCOL   send steps over WebSocket streams, one for each sequence; PROTOCOL "
        "is\n"
        "                      plain or json (continuo.v1.plain, continuo.v1.json)\n"
        "  --echo              the answer must be the request's body, not a running sum\n"
        "  --any-answer        any answer with status 200 is right: for models that don't count\n"
        "  --end               at the end, end each sequence with a step 0 and check its total\n"
        "  --open-only N       only open N sequences with one step each, then stop\n"
        "  --random            choose the next sequence at random, not in turn\n"
        "  --sums FILE         keep the sums in FILE, and go on from them if FILE exists; use the\n"
        "                      same --prefix and --sequences each time\n"
        "SIGINT ends the measurement early.\n",
        out);
}

static uint32_t
parse_count(const char *flag, const char *text, uint32_t max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value < 1 || value > max) {
        fprintf(stderr, "continuo-bench: --%s: %s is not a number from 1 to %u\n", flag, text, max);
        exit(2);
    }
    return (uint32_t)value;
}

static double
parse_number(const char *flag, const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (*text == '\0' || *end != '\0' || !(value >= 0) || value > 1e9) {
        fprintf(stderr, "continuo-bench: --%s: %s is not a number of 0 or more\n", flag, text);
        exit(2);
    }
    return value;
}

/* Splits "http://HOST[:PORT][/]" into host and port. */
static void
parse_url(const char *url, struct options *opt)
{
    char *colon;

    if (strncmp(url, "http://", 7) != 0) {
        fprintf(stderr, "continuo-bench: --url: %s does not begin with http://\n", url);
        exit(2);
    }
    opt->url = strdup(url + 7);
    opt->url[strcspn(opt->url, "/")] = '\0';
    colon = strrchr(opt->url, ':');
    opt->port = colon ? colon + 1 : "80";
    if (colon)
        *colon = '\0';
    opt->host = opt->url;
}

static enum wire
parse_wire(const char *text)
{
    if (strcmp(text, "plain") == 0)
        return WIRE_STREAM_PLAIN;
    if (strcmp(text, "json") == 0)
        return WIRE_STREAM_JSON;
    fprintf(stderr, "continuo-bench: --stream: %s is neither plain nor json\n", text);
    exit(2);
}

/* Ends the program if options do not go together. */
static void
check_together(const struct options *opt)
{
    const char *why = NULL;

    if (opt->processes > opt->connections)
        why = "--processes: each process needs a connection; raise --connections";
    else if (opt->processes > 1 && opt->sums_file)
        why = "--sums: only one process can keep the sums; leave out --processes";
    else if (opt->ramp > 0 && (opt->rate <= 0 || opt->duration_s <= 0))
        why = "--ramp: give the rate at the beginning with --rate, and a --duration over 0";
    else if (opt->wire != WIRE_HTTP &&
             (opt->v2 || opt->echo || opt->end || opt->open_only || opt->sums_file))
        why = "--stream does not go together with --v2, --echo, --end, --open-only and --sums";
    else if (opt->wire != WIRE_HTTP && opt->sequences != opt->connections)
        why = "--stream: each sequence has its stream; leave out --sequences";
    if (why == NULL)
        return;
    fprintf(stderr, "continuo-bench: %s\n", why);
    exit(2);
}

void
options_parse(struct options *opt, int argc, char **argv)
{
    static const struct option flags[] = {
        {"url", 1, NULL, 'u'},       {"model", 1, NULL, 'm'},     {"connections", 1, NULL, 'c'},
        {"sequences", 1, NULL, 's'}, {"duration", 1, NULL, 'd'},  {"warmup", 1, NULL, 'w'},
        {"rate", 1, NULL, 'r'},      {"prefix", 1, NULL, 'p'},    {"header", 1, NULL, 'H'},
        {"echo", 0, NULL, 'e'},      {"end", 0, NULL, 'z'},       {"any-answer", 0, NULL, 'y'},
        {"open-only", 1, NULL, 'o'}, {"help", 0, NULL, 'h'},      {"stall-seconds", 1, NULL, 'S'},
        {"random", 0, NULL, 'R'},    {"sums", 1, NULL, 'f'},      {"ramp", 1, NULL, 'a'},
        {"processes", 1, NULL, 'P'}, {"any-share", 0, NULL, 'A'}, {"v2", 0, NULL, '2'},
        {"stream", 1, NULL, 't'},    {NULL, 0, NULL, 0}};
    const char *url = "http://127.0.0.1:8080";
    int c;

    *opt = (struct options){.model = "counter",
                            .header = "ts-request-sequence-id",
                            .connections = 16,
                            .processes = 1,
                            .duration_s = 5,
                            .warmup_s = 1,
                            .stall_s = 1};
    /* Two runs on one server must not use the same sequences. */
    snprintf(opt->prefix, sizeof(opt->prefix), "b%lx%x", (unsigned long)time(NULL),
             (unsigned)getpid());
    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        switch (c) {
        case 'u':
            url = optarg;
            break;
        case 'm':
            opt->model = optarg;
            break;
        case 'c':
            opt->connections = parse_count("connections", optarg, 100000);
            break;
        case 's':
            opt->sequences = parse_count("sequences", optarg, 100000000);
            break;
        case 'd':
            opt->duration_s = parse_number("duration", optarg);
            break;
        case 'w':
            opt->warmup_s = parse_number("warmup", optarg);
            break;
        case 'r':
            opt->rate = parse_number("rate", optarg);
            break;
        case 'a':
            opt->ramp = parse_number("ramp", optarg);
            break;
        case 'P':
            opt->processes = parse_count("processes", optarg, TALLY_MAX_PROCESSES);
            break;
        case '2':
            opt->v2 = true;
            break;
        case 't':
            opt->wire = parse_wire(optarg);
            break;
        case 'A':
            opt->any_share = true;
            break;
        case 'p':
            if (strlen(optarg) >= sizeof(opt->prefix)) {
                fputs("continuo-bench: --prefix: at most 63 bytes\n", stderr);
                exit(2);
            }
            strcpy(opt->prefix, optarg);
            break;
        case 'H':
            opt->header = optarg;
            break;
        case 'e':
            opt->echo = true;
            break;
        case 'y':
            opt->any_answer = true;
            break;
        case 'z':
            opt->end = true;
            break;
        case 'o':
            opt->open_only = parse_count("open-only", optarg, 100000000);
            break;
        case 'R':
            opt->random = true;
            break;
        case 'f':
            opt->sums_file = optarg;
            break;
        case 'S':
            opt->stall_s = parse_number("stall-seconds", optarg);
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "continuo-bench: what is %s? (--help lists the options)\n", argv[optind]);
        exit(2);
    }
    parse_url(url, opt);
    if (opt->open_only > 0) {
        opt->sequences = opt->open_only;
        opt->rate = 0;
    }
    if (opt->sequences == 0)
        opt->sequences = opt->connections;
    if (opt->connections > opt->sequences)
        opt->connections = opt->sequences;
    check_together(opt);
}

void
options_fini(struct options *opt)
{
    free(opt->url);
    opt->url = NULL;
}
