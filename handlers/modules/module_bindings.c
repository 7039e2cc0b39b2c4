/* handlers/modules/module_bindings.c - reads which inputs, states and numbers are the arguments of
 * a module's method, and what its results are. Worker's thread.
 *
 * What is read here ends in three tables, which a run goes through without looking at a name again:
 *   arguments   each is an input, a state or a number, by its index in the declarations
 *   results     each is an output, a state, both (a state that clients see, too), or not wanted
 *   attributes  each is a state that the module keeps itself, or a number that is set before a run
 *
 * With `arguments: [audio, 16000]`, one input `audio` and one state `h` that the module keeps in
 * `_h`, the tables are {input 0}, {number 16000} for the arguments and {_h: state 0} for the
 * attributes.
 */
#include "handlers/modules/module_config_priv.h"

static bool
is_scalar(const struct cn_yaml *value)
{
    return value->kind != CN_YAML_LIST && value->kind != CN_YAML_MAP;
}

static bool
take_number(const struct cn_yaml *value, struct ctt_value *out)
{
    *out = (struct ctt_value){.integer = value->integer, .number = value->number};
    switch (value->kind) {
    case CN_YAML_BOOL:
        out->kind = CTT_BOOL;
        out->integer = value->boolean;
        return true;
    case CN_YAML_INT:
        out->kind = CTT_INT;
        return true;
    case CN_YAML_FLOAT:
        out->kind = CTT_FLOAT;
        return true;
    default:
        return false;
    }
}

int32_t
cn_module_find_input(const struct cn_model_io *io, struct cn_str name)
{
    const struct cn_tensor_spec *spec = cn_model_io_input(io, name, 0);

    return spec ? (int32_t)(spec - io->inputs) : -1;
}

static int32_t
find_output(const struct cn_model_io *io, struct cn_str name)
{
    const struct cn_tensor_spec *spec = cn_model_io_output(io, name, 0);

    return spec ? (int32_t)(spec - io->outputs) : -1;
}

static int32_t
find_state(const struct cn_model_io *io, struct cn_str name, bool as_input)
{
    const struct cn_state_spec *spec =
        as_input ? cn_state_of_input(&io->state, name) : cn_state_of_output(&io->state, name);

    return spec ? (int32_t)(spec - io->state.items) : -1;
}

static bool
kept_by_module(const struct cn_module_config *config, int32_t state)
{
    for (uint32_t i = 0; i < config->n_attributes; i++)
        if (config->attributes[i].state == state)
            return true;
    return false;
}

/* Both maps fill one table. `attributes: {_h: h}` names a state for an attribute of the module, and
 * `set: {_sr: 16000, _n: batch}` names a number, or the size of the batch. */
static int
read_attributes(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    const struct cn_yaml *maps[] = {cn_yaml_get(settings, "attributes"),
                                    cn_yaml_get(settings, "set")};
    struct cn_module_config *config = parse->config;

    for (size_t m = 0; m < 2; m++) {
        const char *key = m == 0 ? "attributes" : "set";

        if (!maps[m])
            continue;
        if (maps[m]->kind != CN_YAML_MAP || maps[m]->n_items > CN_MODULE_VALUES_MAX)
            return cn_module_refuse(parse, maps[m], key, "a map of the module's attributes");
        for (uint32_t i = 0; i < maps[m]->n_items; i++) {
            const struct cn_yaml *value = maps[m]->items[i];
            struct cn_module_attribute *attribute = &config->attributes[config->n_attributes];

            attribute->state = -1;
            attribute->name = cn_arena_strndup(&config->arena, value->key.ptr, value->key.len);
            if (m == 0 && is_scalar(value))
                attribute->state = find_state(config->io, value->text, true);
            if (m == 0 && (attribute->state < 0 || kept_by_module(config, attribute->state)))
                return cn_module_refuse(parse, value, key,
                                        "the name of a declared state, each only once");
            attribute->batch = m == 1 && cn_str_eq(value->text, CN_STR("batch"));
            if (m == 1 && !attribute->batch && !take_number(value, &attribute->number))
                return cn_module_refuse(parse, value, key, "a number, true, false or batch");
            config->n_attributes++;
        }
    }
    return 0;
}

static void
default_arguments(struct cn_module_config *config)
{
    const struct cn_model_io *io = config->io;

    for (uint32_t i = 0; i < io->n_inputs; i++)
        config->arguments[config->n_arguments++] =
            (struct cn_module_binding){(int32_t)i, -1, -1, {0}};
    for (uint32_t i = 0; i < io->state.n; i++)
        if (!kept_by_module(config, (int32_t)i))
            config->arguments[config->n_arguments++] =
                (struct cn_module_binding){-1, -1, (int32_t)i, {0}};
}

/* If clients see a state, too, the state and the output are one result. */
static void
default_results(struct cn_module_config *config)
{
    const struct cn_model_io *io = config->io;

    for (uint32_t i = 0; i < io->n_outputs; i++)
        config->results[config->n_results++] = (struct cn_module_binding){
            -1, (int32_t)i, find_state(io, io->outputs[i].name, false), {0}};
    for (uint32_t i = 0; i < io->state.n; i++)
        if (!kept_by_module(config, (int32_t)i) && find_output(io, io->state.items[i].output) < 0)
            config->results[config->n_results++] =
                (struct cn_module_binding){-1, -1, (int32_t)i, {0}};
}

static int
read_list(const struct cn_module_parse *parse, const struct cn_yaml *settings, const char *key,
          const struct cn_yaml **out)
{
    const struct cn_yaml *list = *out = cn_yaml_get(settings, key);

    if (list && (list->kind != CN_YAML_LIST || list->n_items > CN_MODULE_VALUES_MAX))
        return cn_module_refuse(parse, list, key, "a list of up to 256 names");
    return 0;
}

static int
read_arguments(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    struct cn_module_config *config = parse->config;
    const struct cn_yaml *list;
    int rc = read_list(parse, settings, "arguments", &list);

    if (rc)
        return rc;
    if (!list) {
        default_arguments(config);
        return 0;
    }
    for (uint32_t i = 0; i < list->n_items; i++) {
        struct cn_module_binding binding = {-1, -1, -1, {0}};
        const struct cn_yaml *value = list->items[i];

        if (!take_number(value, &binding.number)) {
            binding.input = is_scalar(value) ? cn_module_find_input(config->io, value->text) : -1;
            binding.state = is_scalar(value) ? find_state(config->io, value->text, true) : -1;
            if (binding.input < 0 && binding.state < 0)
                return cn_module_refuse(parse, value, "arguments",
                                        "an input, a state, a number, true or false");
        }
        config->arguments[config->n_arguments++] = binding;
    }
    return 0;
}

static int
read_results(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    struct cn_module_config *config = parse->config;
    const struct cn_yaml *list;
    int rc = read_list(parse, settings, "results", &list);

    if (rc)
        return rc;
    if (!list) {
        default_results(config);
        return 0;
    }
    for (uint32_t i = 0; i < list->n_items; i++) {
        struct cn_module_binding binding = {-1, -1, -1, {0}};
        const struct cn_yaml *value = list->items[i];

        if (is_scalar(value)) {
            binding.output = find_output(config->io, value->text);
            binding.state = find_state(config->io, value->text, false);
        }
        if (binding.output < 0 && binding.state < 0 && !cn_str_eq(value->text, CN_STR("_")))
            return cn_module_refuse(parse, value, "results", "an output, a state or _");
        config->results[config->n_results++] = binding;
    }
    return 0;
}

/* Checks that every output and state has a source, and that every input is used.
 *
 * A state that the module keeps is its own source. An output without a source would be an answer
 * without that tensor, and a state without one would never change; both are found here, at
 * registration. */
static int
check_complete(const struct cn_module_parse *parse)
{
    const struct cn_module_config *config = parse->config;
    const struct cn_model_io *io = config->io;

    for (uint32_t i = 0; i < io->n_inputs; i++) {
        bool used = false;

        for (uint32_t a = 0; a < config->n_arguments; a++)
            used = used || config->arguments[a].input == (int32_t)i;
        if (!used)
            return cn_fail(parse->err, CN_E_CONFIG, "%s: %s.arguments does not name the input %.*s",
                           parse->name, config->kind->runtime, CN_STR_ARG(io->inputs[i].name));
    }
    for (uint32_t i = 0; i < io->n_outputs + io->state.n; i++) {
        int32_t state = (int32_t)i - (int32_t)io->n_outputs;
        bool given = state >= 0 && kept_by_module(config, state);

        for (uint32_t r = 0; r < config->n_results; r++)
            given = given || (state >= 0 ? config->results[r].state == state
                                         : config->results[r].output == (int32_t)i);
        if (!given)
            return cn_fail(
                parse->err, CN_E_CONFIG, "%s: %s.results does not name the %s %.*s", parse->name,
                config->kind->runtime, state >= 0 ? "state" : "output",
                CN_STR_ARG(state >= 0 ? io->state.items[state].output : io->outputs[i].name));
    }
    return 0;
}

int
cn_module_read_bindings(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    int rc = read_attributes(parse, settings);

    if (!rc)
        rc = read_arguments(parse, settings);
    if (!rc)
        rc = read_results(parse, settings);
    return rc ? rc : check_complete(parse);
}
