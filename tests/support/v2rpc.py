"""gRPC clients of the v2 protocol: tritonclient's messages, raw calls, and streams that a test controls.

Our own .proto files define the same names as tritonclient's, and one process cannot have both. So ours are read by
server reflection, into a pool of their own."""

import queue

import grpc
import tritonclient.grpc as triton
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tritonclient.grpc import service_pb2_grpc

from rpc import module
from v2request import request
from waiting import limit

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1)]


def client_of(server, **more):
    return triton.InferenceServerClient(server.grpc, **more)


def channel_of(server):
    return grpc.insecure_channel(server.grpc, OPTIONS)


def stub_of(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(name, values, datatype):
    given = triton.InferInput(name, list(values.shape), datatype)
    given.set_data_from_numpy(values)
    return given


def step(model, value, sequence=None, **more):
    """Makes a request to the accumulator."""
    parameters = {} if sequence is None else {"sequence_id": sequence}
    return request(model, [("INPUT", "INT32", [1])], [value.to_bytes(4, "little", signed=True)], **parameters, **more)


class Stream:
    """One ModelStreamInfer call: send() at any time, and read the answers one by one."""

    def __init__(self, channel, metadata=None, timeout=120):
        self._requests = queue.Queue()
        self.call = stub_of(channel).ModelStreamInfer(iter(self._requests.get, None), metadata=metadata,
                                                      timeout=limit(timeout))

    def send(self, *messages):
        for message in messages:
            self._requests.put(message)
        return self

    def half_close(self):
        self._requests.put(None)
        return self

    def next(self):
        return next(self.call)

    def ask(self, message):
        return self.send(message).next()

    def rest(self):
        return list(self.call)

    def cancel(self):
        self.call.cancel()
        self.half_close()


def reflected(channel, service):
    """Returns a function make(kind, **fields) that makes messages of the service's package, from its reflection."""
    types = module("grpc.reflection.v1.reflection_pb2")
    asking = module("grpc.reflection.v1.reflection_pb2_grpc").ServerReflectionStub(channel)
    pool = descriptor_pool.DescriptorPool()
    added = set()

    def ask(**what):
        answer = next(asking.ServerReflectionInfo(iter([types.ServerReflectionRequest(**what)]), timeout=limit(30)))
        assert not answer.HasField("error_response"), answer
        return descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])

    def add(file):
        for name in file.dependency:
            if name not in added:
                add(ask(file_by_filename=name))
        added.add(file.name)
        pool.Add(file)

    add(ask(file_containing_symbol=service))
    package = service.rpartition(".")[0]
    return lambda kind, **fields: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{kind}"))(
        **fields)


def call_of(channel, service, name, make):
    """Returns a unary method of a reflected service."""
    answer = {"ModelInfer": "ModelInferResponse"}.get(name, f"{name}Response")
    return channel.unary_unary(f"/{service}/{name}", request_serializer=lambda message: message.SerializeToString(),
                               response_deserializer=type(make(answer)).FromString)
