/* kserve/infer_answer.c - checks a handler's tensors against the model's declaration and the
 * request, and puts them in order. Any thread.
 *
 * A handler may return outputs that the client did not ask for; they are left out when the response
 * is written (cn_v2_wanted). An output that the client named must be there, with the declared
 * datatype. The order is the client's if it named outputs, and the model's otherwise, since some
 * clients read outputs by their position. */
#include "kserve/infer_answer.h"

/* Has the answer a tensor of this name? It is most often number `i`. */
static bool
has_tensor(const struct cn_v2_answer *answer, struct cn_str name, uint32_t i)
{
    if (i < answer->n_tensors && cn_str_eq(answer->tensors[i].name, name))
        return true;
    for (i = 0; i < answer->n_tensors; i++)
        if (cn_str_eq(answer->tensors[i].name, name))
            return true;
    return false;
}

int
cn_v2_answer_check(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                   const struct cn_model_io *io, struct cn_error *err)
{
    bool seen[CN_MODEL_TENSORS_MAX];

    memset(seen, 0, io->n_outputs);
    for (uint32_t i = 0; i < request->n_outputs; i++)
        if (!has_tensor(answer, request->outputs[i].name, i))
            return cn_fail(err, CN_E_HANDLER_FAILED, "the handler returned no output '%.*s'",
                           CN_STR_ARG(request->outputs[i].name));
    for (uint32_t i = 0; i < answer->n_tensors; i++) {
        const struct cn_tensor *tensor = &answer->tensors[i];
        const struct cn_tensor_spec *spec = cn_model_io_output(io, tensor->name, i);

        if (!spec)
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "the handler returned an output '%.*s' that the model does not declare",
                           CN_STR_ARG(tensor->name));
        if (seen[spec - io->outputs])
            return cn_fail(err, CN_E_HANDLER_FAILED, "the handler returned output '%.*s' twice",
                           CN_STR_ARG(tensor->name));
        seen[spec - io->outputs] = true;
        if (spec->type != tensor->type)
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "the handler returned output '%.*s' as %s, but the model declares %s",
                           CN_STR_ARG(tensor->name), cn_datatype_word(tensor->type),
                           cn_datatype_word(spec->type));
    }
    return 0;
}

/* Moves the tensor of that name to `place`, by exchanging it with the tensor there. */
static bool
put_at(struct cn_tensor *tensors, uint32_t n, uint32_t place, struct cn_str name)
{
    uint32_t i = place;

    while (i < n && !cn_str_eq(tensors[i].name, name))
        i++;
    if (i > place && i < n) {
        const struct cn_tensor moved = tensors[i];

        tensors[i] = tensors[place];
        tensors[place] = moved;
    }
    return i < n;
}

void
cn_v2_answer_order(struct cn_tensor *tensors, uint32_t n, const struct cn_v2_request *request,
                   const struct cn_model_io *io)
{
    const uint32_t n_names = request->lists_outputs ? request->n_outputs : io->n_outputs;
    uint32_t place = 0;

    for (uint32_t i = 0; i < n_names; i++)
        place += put_at(tensors, n, place,
                        request->lists_outputs ? request->outputs[i].name : io->outputs[i].name);
}

const struct cn_v2_output *
cn_v2_wanted(const struct cn_v2_request *request, struct cn_str name,
             struct cn_v2_output *otherwise)
{
    if (!request->lists_outputs) {
        *otherwise = (struct cn_v2_output){.name = name, .binary = request->binary_by_default};
        return otherwise;
    }
    for (uint32_t i = 0; i < request->n_outputs; i++)
        if (cn_str_eq(request->outputs[i].name, name))
            return &request->outputs[i];
    return NULL;
}
