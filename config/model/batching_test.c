/* config/model/batching_test.c - tests which settings the blocks sequence_batching and
 * dynamic_batching accept. */
#include "config/model/batching.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define IO                                                                                         \
    "max_batch_size: 4\ninput: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"                    \
    "output: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"

static int
parse(const char *text, struct cn_model_io **io, struct cn_model_config *config,
      struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc;

    cn_model_config_init(config);
    assert_int_equal(cn_yaml_parse("model.yaml", cn_str_from(text), &doc, err), 0);
    assert_int_equal(cn_model_config_apply(config, doc, NULL, NULL, err), 0);
    assert_int_equal(cn_model_io_parse(doc, io, err), 0);
    rc = cn_batching_parse(doc, "m", *io, err);
    if (!rc)
        cn_batching_apply(doc, *io, config);
    cn_yaml_destroy(doc);
    return rc;
}

/* Both spellings of a key have the same effect, and a key that is missing has Triton's default. */
static void
both_spellings_are_one(void **state)
{
    static const char *const texts[] = {
        IO "sequence_batching:\n"
           "  max_sequence_idle_microseconds: 2500\n"
           "  control_input: [{name: E, control: [{kind: CONTROL_SEQUENCE_END, int32_false_true: "
           "[-1, 7]}]}]\n"
           "  oldest: {max_candidate_sequences: 9, preferred_batch_size: [4, 2], "
           "max_queue_delay_microseconds: 5, preserve_ordering: true}\n",
        IO "sequenceBatching:\n"
           "  maxSequenceIdleMicroseconds: 2500\n"
           "  controlInput: [{name: E, control: [{kind: CONTROL_SEQUENCE_END, int32FalseTrue: "
           "[-1, 7]}]}]\n"
           "  oldest: {maxCandidateSequences: 9, candidateBatchSize: [4, 2], "
           "maxQueueDelayMicroseconds: 5, preserveOrdering: true}\n"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct cn_model_config config;
        const struct cn_batching *batching;
        const struct cn_control *end;
        struct cn_model_io *io;
        struct cn_error err;
        int32_t value;

        assert_int_equal(parse(texts[i], &io, &config, &err), 0);
        batching = io->batching;
        assert_int_equal(batching->kind, CN_BATCHING_OLDEST);
        assert_int_equal(batching->max_candidates, 9);
        assert_int_equal(batching->n_preferred, 2);
        assert_int_equal(batching->preferred[0], 2);
        assert_int_equal(batching->delay_us, 5);
        assert_true(batching->preserve_ordering);
        end = cn_batching_control(batching, CN_CONTROL_SEQUENCE_END);
        assert_int_equal(end->type, CN_DATATYPE_INT32);
        memcpy(&value, end->bytes[1], 4);
        assert_int_equal(value, 7);
        assert_null(cn_batching_control(batching, CN_CONTROL_SEQUENCE_CORRID));
        assert_true(config.sequence_batching);
        assert_false(config.sequence_implicit_start);
        assert_int_equal(config.sequence_max_idle_ms, 3);
        assert_int_equal(config.batch_size, 4);
        cn_model_io_unref(io);
    }
}

/* The plain option keeps its meaning, in both spellings. */
static void
a_boolean_is_no_block(void **state)
{
    struct cn_model_config config;
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parse(i ? IO "sequenceBatching: true\n" : IO "sequence_batching: true\n",
                               &io, &config, &err),
                         0);
        assert_null(io->batching);
        assert_true(config.sequence_batching);
        assert_true(config.sequence_implicit_start);
        assert_int_equal(config.batch_size, 1);
        cn_model_io_unref(io);
    }
}

/* `direct` and an idle time of one second are the defaults. A plain option that is set overrides
 * them. */
static void
defaults_and_plain_options(void **state)
{
    struct cn_model_config config;
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    assert_int_equal(parse(IO "sequence_batching: {}\n", &io, &config, &err), 0);
    assert_int_equal(io->batching->kind, CN_BATCHING_DIRECT);
    assert_int_equal(config.sequence_max_idle_ms, 1000);
    cn_model_io_unref(io);
    assert_int_equal(parse(IO "sequence_batching: {}\nbatchSize: 2\nsequenceMaxIdleMSec: 70\n"
                              "sequence: {implicitStart: true}\n",
                           &io, &config, &err),
                     0);
    assert_int_equal(config.batch_size, 2);
    assert_int_equal(config.sequence_max_idle_ms, 70);
    assert_true(config.sequence_implicit_start);
    cn_model_io_unref(io);
}

/* Levels take the default policy unless they have their own. */
static void
levels_have_policies(void **state)
{
    struct cn_model_config config;
    const struct cn_batching *batching;
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    assert_int_equal(parse(IO "dynamic_batching:\n  preferred_batch_size: [4]\n"
                              "  priority_levels: 3\n  default_priority_level: 2\n"
                              "  default_queue_policy: {timeout_action: DELAY, max_queue_size: 5, "
                              "default_timeout_microseconds: 9, allow_timeout_override: true}\n"
                              "  priority_queue_policy: {1: {max_queue_size: 1}}\n",
                           &io, &config, &err),
                     0);
    batching = io->batching;
    assert_int_equal(batching->kind, CN_BATCHING_DYNAMIC);
    assert_false(config.sequence_batching);
    assert_int_equal(batching->default_level, 2);
    assert_false(batching->policies[1].delay);
    assert_int_equal(batching->policies[1].max_queued, 1);
    assert_true(batching->policies[3].delay && batching->policies[3].allow_override);
    assert_int_equal(batching->policies[3].timeout_us, 9);
    cn_model_io_unref(io);
}

/* Each mistake is named with its place. */
static void
mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"sequence_batching: {}\n", "need declared inputs and outputs, which are missing for m"},
        {IO "sequence_batching: {}\ndynamic_batching: {}\n", "one of sequence_batching and"},
        {IO "sequenceBatching: true\ndynamic_batching: {}\n", "one of sequence_batching and"},
        {IO "sequence_batching: 3\n", "a map of settings"},
        {IO "dynamic_batching: [1]\n", "a map of settings"},
        {IO "sequence_batching: {oldest: {}, direct: {}}\n", "one strategy, direct or oldest"},
        {IO "sequence_batching: {oldest: 1}\n", "a map of settings"},
        {IO "sequence_batching: {direct: {minimum_slot_utilization: 1.5}}\n", "from 0 to 1"},
        {IO "sequence_batching: {direct: {minimum_slot_utilization: .nan}}\n", "from 0 to 1"},
        {IO "sequence_batching: {iterative_sequence: true}\n", "iterative_sequence"},
        {IO "sequence_batching: {max_sequence_idle_microseconds: -1}\n", "an integer from 0"},
        {IO "sequence_batching: {timeout_action: maybe}\n", "reject, complete or describe"},
        {IO "sequence_batching: {control_input: 1}\n", "a list of controls"},
        {IO "sequence_batching: {control_input: [{name: A, control: [{kind: "
            "CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}]}\n",
         "control tensor 'A' is also an input for m"},
        {IO "sequence_batching: {control_input: [{name: B, control: [{kind: START}]}]}\n",
         "CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END"},
        {IO "sequence_batching: {control_input: [{name: B, control: [{kind: "
            "CONTROL_SEQUENCE_START, bool_false_true: [0, 1]}]}]}\n",
         "expected BOOL, found"},
        {IO "sequence_batching: {control_input: [{name: B, control: [{kind: "
            "CONTROL_SEQUENCE_START, int32_false_true: [0, 4294967296]}]}]}\n",
         "expected INT32, found"},
        {IO "sequence_batching: {control_input: [{name: B, control: [{kind: "
            "CONTROL_SEQUENCE_START, int32_false_true: [0, 1], fp32_false_true: [0, 1]}]}]}\n",
         "must specify only one of"},
        {IO "sequence_batching: {control_input: [{name: B, control: [{kind: "
            "CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}, {kind: CONTROL_SEQUENCE_END}]}]}\n",
         "is specified for multiple control kinds for m"},
        {IO "dynamic_batching: {preferred_batch_size: [5]}\n",
         "dynamic batching preferred batch size must be <= max batch size for m"},
        {IO "dynamic_batching: {priority_levels: 65}\n", "an integer from 0 to 64"},
        {IO "dynamic_batching: {priority_levels: 2, default_priority_level: 3}\n",
         "a level from 1 to priority_levels"},
        {IO "dynamic_batching: {priority_levels: 2}\n", "a level from 1 to priority_levels"},
        {IO "dynamic_batching: {priority_levels: 2, default_priority_level: 1, "
            "priority_queue_policy: {3: {}}}\n",
         "keys from 1 to priority_levels"},
        {IO "dynamic_batching: {default_queue_policy: {timeout_action: WAIT}}\n",
         "REJECT or DELAY"},
        {IO "dynamic_batching: {delay: 1}\n", "dynamic_batching has no setting delay"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cn_model_config config;
        struct cn_model_io *io;
        struct cn_error err;

        assert_int_equal(parse(wrong[i].text, &io, &config, &err), CN_E_CONFIG);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("%s: %s", wrong[i].text, err.message);
        assert_non_null(strstr(err.message, "model.yaml:"));
        cn_model_io_unref(io);
    }
}

/* The configuration that is shown over gRPC has 64-bit integers as strings and leaves out defaults.
 * Over HTTP, empty lists stand for the types that a control does not have. */
static void
what_the_protocol_shows_is_read(void **state)
{
    struct cn_model_config config;
    const struct cn_control *start;
    struct cn_model_io *io;
    struct cn_error err;
    int rc = parse("max_batch_size: 4\n"
                   "input: [{name: A, data_type: TYPE_INT32, dims: ['-1', \"2\"]}]\n"
                   "output: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
                   "sequence_batching: {max_sequence_idle_microseconds: \"3000\", control_input: "
                   "[{name: S, control: [{int32_false_true: [], fp32_false_true: [0, 1], "
                   "bool_false_true: [], data_type: TYPE_INVALID}]}]}\n",
                   &io, &config, &err);

    (void)state;
    assert_int_equal(rc, 0);
    assert_int_equal(io->inputs[0].dims[0], -1);
    assert_int_equal(io->inputs[0].dims[1], 2);
    assert_int_equal(io->batching->idle_us, 3000);
    start = cn_batching_control(io->batching, CN_CONTROL_SEQUENCE_START);
    assert_non_null(start);
    assert_int_equal(start->type, CN_DATATYPE_FP32);
    cn_model_io_unref(io);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_are_one),
        cmocka_unit_test(a_boolean_is_no_block),
        cmocka_unit_test(defaults_and_plain_options),
        cmocka_unit_test(levels_have_policies),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(what_the_protocol_shows_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
