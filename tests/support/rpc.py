"""gRPC clients, with code that grpcio-tools generates from proto/ when the tests begin."""

import atexit
import functools
import pathlib
import shutil
import sys
import tempfile

import grpc
from grpc_tools import protoc

from models import ROOT
from waiting import limit

FILES = ("inference.proto", "management.proto", "otlp.proto", "google/rpc/status.proto", "google/rpc/error_details.proto",
         "grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto",
         "grpc/reflection/v1alpha/reflection.proto")


@functools.cache
def generated():
    """Returns the folder of the generated modules, and puts it on sys.path."""
    folder = tempfile.mkdtemp(prefix="continuo-proto-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    include = pathlib.Path(protoc.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{include}", f"--python_out={folder}",
                        f"--grpc_python_out={folder}", *FILES])
    assert code == 0, "grpcio-tools cannot compile proto/"
    sys.path.insert(0, folder)
    # `grpc` is grpcio's package, and our generated files with that name are beside it.
    for name in ("grpc.health", "grpc.reflection"):  # grpcio's names for packages of its own
        sys.modules.pop(name, None)
    grpc.__path__.insert(0, str(pathlib.Path(folder) / "grpc"))
    return folder


def module(name):
    """Returns the module of a .proto file: module("inference_pb2")."""
    generated()
    return __import__(name, fromlist=["x"])


def inference():
    return module("inference_pb2")


def request(model, data=None, sequence=None, version="", **more):
    """Makes a PredictionsRequest; `data` becomes input["data"]."""
    inputs = {key: value if isinstance(value, bytes) else str(value).encode() for key, value in more.items()}
    if data is not None:
        inputs["data"] = data if isinstance(data, bytes) else str(data).encode()
    message = inference().PredictionsRequest(model_name=model, model_version=version, input=inputs)
    if sequence is not None:
        message.sequence_id = sequence
    return message


class Rpc:
    """A channel to one of the server's ports, with its services."""

    def __init__(self, target, credentials=None, options=(), **more):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                   ("grpc.use_local_subchannel_pool", 1), *options]
        if credentials:
            self.channel = grpc.secure_channel(target, credentials, options, **more)
        else:
            self.channel = grpc.insecure_channel(target, options, **more)
        self.inference = module("inference_pb2_grpc").InferenceAPIsServiceStub(self.channel)
        self.management = module("management_pb2_grpc").ManagementAPIsServiceStub(self.channel)
        self.health = module("grpc.health.v1.health_pb2_grpc").HealthStub(self.channel)

    def predict(self, *args, metadata=None, timeout=30, **more):
        return self.inference.Predictions(request(*args, **more), metadata=metadata, timeout=limit(timeout))

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def refused(call, *args, **more):
    """Returns the status of a call that must fail."""
    try:
        answer = call(*args, **more)
        if hasattr(answer, "__iter__") and not hasattr(answer, "DESCRIPTOR"):
            answer = list(answer)
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"the call was not refused: {answer!r}")


def word(error):
    """Returns the error word of a refusal: "queue_full"."""
    return dict(error.trailing_metadata() or ()).get("continuo-error")


def details(error):
    """Returns the google.rpc.Status of a refused call, with its ErrorInfo and RetryInfo by name."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    return unpack_details(module("google.rpc.status_pb2").Status.FromString(packed))


def unpack_details(status):
    types = module("google.rpc.error_details_pb2")
    found = {}
    for item in status.details:
        name = item.type_url.rpartition(".")[2]
        found[name] = getattr(types, name).FromString(item.value)
    return status, found
