/* config/model/batching_control.c - reads the control tensors of sequence_batching. Any thread.
 *
 * A control is a tensor that the server adds to each request: START, END and READY say yes or no,
 * and CORRID gives the sequence's id. The YAML says which two values mean no and yes, and thereby
 * the datatype: int32_false_true: [0, 1]. They are kept as the bytes that are sent, so that adding
 * a control to a request is only a copy. */
#include "config/model/batching_priv.h"

#include <string.h>

static const char *const control_words[] = {"CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END",
                                            "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID"};

const char *
cn_control_word(enum cn_control_kind kind)
{
    return control_words[kind];
}

const struct cn_control *
cn_batching_control(const struct cn_batching *batching, enum cn_control_kind kind)
{
    for (uint32_t i = 0; batching && i < batching->n_controls; i++)
        if (batching->controls[i].kind == kind)
            return &batching->controls[i];
    return NULL;
}

/* The two values must have the type that the key names; an integer is also accepted for a float. */
static int
set_boolean(const struct cn_batching_reader *parse, const struct cn_yaml *value,
            enum cn_datatype type, struct cn_control *control)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct cn_yaml *item = value->items[i];
        const int32_t integer = (int32_t)item->integer;
        const float number = (float)item->number;

        if (type == CN_DATATYPE_BOOL    ? item->kind != CN_YAML_BOOL
            : type == CN_DATATYPE_INT32 ? item->kind != CN_YAML_INT || item->integer != integer
                                        : item->kind != CN_YAML_INT && item->kind != CN_YAML_FLOAT)
            return cn_batching_refuse(parse, item, "false and true of a control",
                                      cn_datatype_word(type));
        if (type == CN_DATATYPE_BOOL)
            control->bytes[i][0] = item->boolean;
        else
            memcpy(control->bytes[i], type == CN_DATATYPE_INT32 ? (const void *)&integer : &number,
                   4);
    }
    control->type = type;
    return 0;
}

/* The two values are given in one of three forms; exactly one of them must be there. */
static int
read_boolean(const struct cn_batching_reader *parse, const struct cn_yaml *item,
             struct cn_control *control)
{
    static const struct {
        const char *key;
        enum cn_datatype type;
    } forms[] = {{"int32_false_true", CN_DATATYPE_INT32},
                 {"fp32_false_true", CN_DATATYPE_FP32},
                 {"bool_false_true", CN_DATATYPE_BOOL}};
    const char *word = cn_control_word(control->kind);
    int rc = 0;

    for (size_t i = 0; !rc && i < 3; i++) {
        const struct cn_yaml *value = cn_batching_get(item, forms[i].key);

        if (!value || (value->kind == CN_YAML_LIST && value->n_items == 0))
            continue; /* Triton shows a configuration with empty lists for the other two */
        if (control->type != CN_DATATYPE_NONE)
            return cn_batching_invalid(
                parse, value,
                "sequence batching must specify only one of 'int32_false_true', "
                "'fp32_false_true' and 'bool_false_true' for %s",
                word);
        if (value->kind != CN_YAML_LIST || value->n_items != 2)
            return cn_batching_invalid(
                parse, value, "sequence batching control '%s' must have exactly 2 entries for %s",
                forms[i].key, word);
        rc = set_boolean(parse, value, forms[i].type, control);
    }
    if (!rc && control->type == CN_DATATYPE_NONE)
        rc = cn_batching_invalid(
            parse, item,
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' "
            "or 'bool_false_true' for %s",
            word);
    return rc;
}

static int
read_corrid(const struct cn_batching_reader *parse, const struct cn_yaml *item,
            struct cn_control *control)
{
    const struct cn_yaml *type = cn_batching_get(item, "data_type");

    control->type =
        type && type->kind == CN_YAML_STRING ? cn_datatype_parse(type->text) : CN_DATATYPE_NONE;
    switch (control->type) {
    case CN_DATATYPE_UINT64:
    case CN_DATATYPE_INT64:
    case CN_DATATYPE_UINT32:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_BYTES:
        return 0;
    default:
        return cn_fail(parse->err, CN_E_CONFIG,
                       "%s:%u:%u: unexpected data type for control CONTROL_SEQUENCE_CORRID for %s. "
                       "Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 "
                       "and TYPE_STRING",
                       parse->name, item->line, item->column, parse->model);
    }
}

static int
read_kind(const struct cn_batching_reader *parse, const struct cn_yaml *item,
          struct cn_control *control)
{
    const struct cn_yaml *kind = cn_batching_get(item, "kind");
    /* the default in protobuf */
    struct cn_str word = kind ? kind->text : cn_str_from(control_words[0]);

    for (unsigned i = 0; i < 4; i++) {
        if (!cn_str_eq(word, cn_str_from(control_words[i])))
            continue;
        control->kind = (enum cn_control_kind)i;
        if (cn_batching_control(parse->batching, control->kind))
            return cn_batching_invalid(
                parse, item, "sequence batching specifies multiple %s tensors", control_words[i]);
        return 0;
    }
    return cn_batching_refuse(
        parse, kind, "kind",
        "CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END, CONTROL_SEQUENCE_READY or "
        "CONTROL_SEQUENCE_CORRID");
}

/* A control has a name of its own, which no input and no other control may have. */
static int
read_control(const struct cn_batching_reader *parse, const struct cn_yaml *item,
             struct cn_control *control)
{
    static const char *const known[] = {"name", "control", NULL};
    static const char *const in_known[] = {
        "kind", "int32_false_true", "fp32_false_true", "bool_false_true", "data_type", NULL};
    const struct cn_yaml *name = cn_batching_get(item, "name"),
                         *list = cn_batching_get(item, "control");
    char shown[CN_YAML_SHOWN_MAX];
    int rc = cn_batching_check_keys(parse, item, "control_input", known);

    if (rc)
        return rc;
    if (!name || name->kind != CN_YAML_STRING || name->text.len == 0)
        return cn_batching_invalid(parse, item,
                                   "sequence batching control tensor must have a name");
    if (!list || list->kind != CN_YAML_LIST || list->n_items == 0)
        return cn_batching_refuse(parse, list ? list : item, "control", "a list with one control");
    cn_yaml_shown(name->text, shown);
    if (list->n_items > 1)
        return cn_batching_invalid(
            parse, list,
            "sequence batching control tensor '%s' is specified for multiple control "
            "kinds",
            shown);
    if (cn_model_io_input(parse->io, name->text, 0))
        return cn_batching_invalid(parse, item,
                                   "sequence batching control tensor '%s' is also an input", shown);
    for (uint32_t i = 0; i < parse->batching->n_controls; i++)
        if (cn_str_eq(parse->batching->controls[i].name, name->text))
            return cn_batching_invalid(
                parse, item,
                "sequence batching control tensor '%s' is specified for multiple "
                "control kinds",
                shown);
    control->name = (struct cn_str){
        cn_arena_strndup(&parse->io->arena, name->text.ptr, name->text.len), name->text.len};
    rc = cn_batching_check_keys(parse, list->items[0], "control", in_known);
    if (!rc)
        rc = read_kind(parse, list->items[0], control);
    if (rc)
        return rc;
    return control->kind == CN_CONTROL_SEQUENCE_CORRID
               ? read_corrid(parse, list->items[0], control)
               : read_boolean(parse, list->items[0], control);
}

/* There are four kinds of controls, and each may appear once. There is room for five, so that
 * read_control can report the one that is too many. */
int
cn_batching_read_controls(const struct cn_batching_reader *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *list = cn_batching_get(block, "control_input");
    struct cn_batching *batching = parse->batching;
    int rc;

    if (!list)
        return 0;
    if (list->kind != CN_YAML_LIST)
        return cn_batching_refuse(parse, list, "control_input", "a list of controls");
    batching->controls = cn_arena_alloc(&parse->io->arena, 5 * sizeof(*batching->controls));
    for (uint32_t i = 0; i < list->n_items; i++) {
        struct cn_control *control = &batching->controls[batching->n_controls];

        *control = (struct cn_control){.type = CN_DATATYPE_NONE};
        if ((rc = read_control(parse, list->items[i], control)))
            return rc;
        batching->n_controls++;
    }
    return 0;
}
