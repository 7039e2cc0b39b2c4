/* examples/speech/speech.c - is somebody speaking? One answer per chunk of recorded sound.
 *
 * A request's body is a chunk of 16-bit little-endian mono PCM, usually 20 ms.
 * The state of a sequence is what has to be known of the sound before: the
 * noise floor, which follows the quietest chunks, and the hang-over, which
 * bridges the pauses between words. It is flat: 40 bytes that survive a crash.
 */
#include <continuo/handler.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define QUIETEST_DB (-90.0) /* digital silence would be minus infinity */

/* The settings in the model's YAML, which are the same for all sequences. */
struct settings {
    double threshold_db;  /* above the noise floor: speech ... */
    double min_level_db;  /* ... if it is as loud as this too */
    double floor_rise_db; /* how much the floor rises with each chunk, to follow a growing noise */
    int64_t hangover;     /* chunks that still count as speech after the last loud one */
    int64_t max_chunk_bytes;
};

/* The state of one sequence. It has no pointers, because its bytes are stored as they are. */
struct state {
    double floor_db;
    uint64_t chunks, speech_chunks;
    int64_t hangover_left;
    uint32_t speaking, segments;
};

static int
load(struct continuo_model *model)
{
    struct settings *settings = malloc(sizeof(*settings));

    if (!settings)
        return continuo_load_error(model, "no memory");
    settings->threshold_db = continuo_config_double(model, "handler.thresholdDb", 9.0);
    settings->min_level_db = continuo_config_double(model, "handler.minLevelDb", -45.0);
    settings->floor_rise_db = continuo_config_double(model, "handler.floorRiseDb", 0.05);
    settings->hangover = continuo_config_int(model, "handler.hangoverChunks", 5);
    settings->max_chunk_bytes = continuo_config_int(model, "handler.maxChunkBytes", 65536);
    if (settings->threshold_db <= 0 || settings->hangover < 0) {
        free(settings);
        return continuo_load_error(model, "handler.thresholdDb must be over 0 and "
                                          "handler.hangoverChunks at least 0");
    }
    continuo_set_data(model, settings);
    return 0;
}

static void
unload(struct continuo_model *model)
{
    free(continuo_data(model));
}

/* Mean power in dB below full scale. */
static double
level_db(struct continuo_bytes pcm)
{
    const unsigned char *bytes = (const unsigned char *)pcm.data;
    size_t n = pcm.len / 2;
    double sum = 0.0, level;

    for (size_t i = 0; i < n; i++) {
        int16_t sample = (int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        double x = sample / 32768.0;

        sum += x * x;
    }
    if (sum <= 0.0)
        return QUIETEST_DB;
    level = 10.0 * log10(sum / (double)n);
    return level > QUIETEST_DB ? level : QUIETEST_DB;
}

/* One chunk further; returns "start" or "end" when it changes what is heard, else NULL. */
static const char *
hear(const struct settings *settings, struct state *state, double level)
{
    uint32_t was = state->speaking;

    if (state->chunks++ == 0 || level < state->floor_db)
        state->floor_db = level; /* quieter than all before: that is the noise */
    else
        state->floor_db += settings->floor_rise_db;

    if (level > state->floor_db + settings->threshold_db && level > settings->min_level_db) {
        state->speaking = 1;
        state->hangover_left = settings->hangover;
    } else if (state->hangover_left > 0) {
        state->hangover_left--;
    } else {
        state->speaking = 0;
    }
    state->speech_chunks += state->speaking;
    if (state->speaking == was)
        return NULL;
    state->segments += state->speaking;
    return state->speaking ? "start" : "end";
}

static void
answer(const struct settings *settings, struct continuo_item *item)
{
    struct continuo_bytes pcm = continuo_body(item);
    struct state *state;
    const char *change;
    double level;

    if (pcm.len == 0 || pcm.len % 2 != 0 || pcm.len > (size_t)settings->max_chunk_bytes) {
        continuo_fail(item, 400, "a chunk is 2 to %" PRId64 " bytes of 16-bit PCM, got %zu bytes",
                      settings->max_chunk_bytes, pcm.len);
        return;
    }
    state = continuo_state(item, sizeof(*state));
    if (!state)
        return; /* the item has failed */
    level = level_db(pcm);
    change = hear(settings, state, level);
    continuo_set_content_type(item, "application/json");
    continuo_replyf(item,
                    "{\"chunk\":%" PRIu64 ",\"speech\":%s,\"change\":%s%s%s,\"level_db\":%.1f,"
                    "\"noise_db\":%.1f,\"speech_chunks\":%" PRIu64 ",\"segments\":%" PRIu32 "}",
                    state->chunks, state->speaking ? "true" : "false", change ? "\"" : "",
                    change ? change : "null", change ? "\"" : "", level, state->floor_db,
                    state->speech_chunks, state->segments);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        answer(continuo_data(model), items[i]);
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI,
    .size = sizeof(struct continuo_handler),
    .state_schema = 1,
    .state_bytes = sizeof(struct state),
    .load = load,
    .unload = unload,
    .run = run,
};
