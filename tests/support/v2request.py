"""Inference requests of the v2 protocol as gRPC messages, for end-to-end tests and for the comparison with Triton."""

from tritonclient.grpc import service_pb2


def parameter(value):
    """Converts a Python value to what clients send. A pair (member, value) chooses the member."""
    if isinstance(value, tuple):
        return service_pb2.InferParameter(**{value[0]: value[1]})
    if isinstance(value, bool):
        return service_pb2.InferParameter(bool_param=value)
    if isinstance(value, int):
        return service_pb2.InferParameter(int64_param=value)
    if isinstance(value, float):
        return service_pb2.InferParameter(double_param=value)
    return service_pb2.InferParameter(string_param=value)


def request(model, inputs=(), raw=(), outputs=(), version="", id="", **parameters):
    """Makes a ModelInferRequest. inputs: (name, datatype, shape[, {contents}[, {parameters}]]); outputs: a name, or
    (name[, {parameters}])."""
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=id, raw_input_contents=raw)
    for name, datatype, shape, *rest in inputs:
        added = message.inputs.add(name=name, datatype=datatype, shape=shape)
        if rest and rest[0] is not None:
            added.contents.SetInParent()
            for field, values in rest[0].items():
                getattr(added.contents, field).extend(values)
        for key, value in (rest[1] if len(rest) > 1 else {}).items():
            added.parameters[key].CopyFrom(parameter(value))
    for output in outputs:
        name, *rest = (output,) if isinstance(output, str) else output
        added = message.outputs.add(name=name)
        for key, value in (rest[0] if rest else {}).items():
            added.parameters[key].CopyFrom(parameter(value))
    for key, value in parameters.items():
        message.parameters[key].CopyFrom(parameter(value))
    return message
