"""What tools expect of a gRPC server: health for load balancers, reflection for tools without .proto files."""

import json
import subprocess
import sys

import grpc
import pytest
from google.protobuf import descriptor_pb2

from models import ROOT, counter
from rpc import Rpc, module, refused
from waiting import limit

SERVICES = {"inference": "org.pytorch.serve.grpc.inference.InferenceAPIsService",
            "management": "org.pytorch.serve.grpc.management.ManagementAPIsService"}
V2 = ["inference.GRPCInferenceService", "org.pytorch.serve.grpc.openinference.GRPCInferenceService"]


def health(name="HealthCheckRequest", **fields):
    return getattr(module("grpc.health.v1.health_pb2"), name)(**fields)


@pytest.mark.parametrize("port", ["inference", "management"])
def test_health_is_what_ping_says(server, port):
    """The empty name means the server. Each service of the port has a name, and other names do not exist."""
    running = server(counter())
    with Rpc(running.grpc if port == "inference" else running.grpc_admin) as client:
        for service in ("", SERVICES[port], "grpc.health.v1.Health"):
            assert client.health.Check(health(service=service), timeout=30).status == 1
        error = refused(client.health.Check, health(service="no.such.Service"), timeout=30)
        assert error.code() == grpc.StatusCode.NOT_FOUND and "no.such.Service" in error.details()
        other = SERVICES["management" if port == "inference" else "inference"]
        assert refused(client.health.Check, health(service=other), timeout=30).code().name == "NOT_FOUND"


def test_watch_tells_each_change_and_the_stop(server):
    """The states are SERVING, NOT_SERVING while a worker is missing, SERVING again, and NOT_SERVING at the end."""
    running = server(counter())
    with Rpc(running.grpc) as client:
        watch = client.health.Watch(health(), timeout=limit(60))
        assert next(watch).status == 1
        answer = running.admin().put("/models/counter?min_worker=0&max_worker=0&synchronous=true")
        assert answer.status in (200, 202)
        unknown = client.health.Watch(health(service="no.such.Service"), timeout=limit(60))
        assert next(unknown).status == 3
        unknown.cancel()
        running.process.terminate()
        said = []
        error = refused(lambda: said.extend(answer.status for answer in watch))
        assert said == [2] and error.code() == grpc.StatusCode.UNAVAILABLE
    running.stop()


def ask(client, version, **question):
    messages = module(f"grpc.reflection.{version}.reflection_pb2")
    service = module(f"grpc.reflection.{version}.reflection_pb2_grpc").ServerReflectionStub(client.channel)
    request = messages.ServerReflectionRequest(host="h", **question)
    answer, = service.ServerReflectionInfo(iter([request]), timeout=limit(30))
    assert answer.valid_host == "h" and answer.original_request == request
    return answer


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_tells_services_and_their_files(server, version):
    """A tool begins with the list of services, and finds each file with everything that it imports."""
    running = server(counter())
    for port, target in (("inference", running.grpc), ("management", running.grpc_admin)):
        with Rpc(target) as client:
            names = [service.name for service in ask(client, version, list_services="").list_services_response.service]
            more = V2 if port == "inference" else []
            assert names == [SERVICES[port], *more, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                             "grpc.reflection.v1alpha.ServerReflection"]
            for name in names:
                answer = ask(client, version, file_containing_symbol=name)
                file = parse(answer)
                assert f"{file.package}.{file.service[0].name}" == name
                for wanted in file.dependency:
                    assert parse(ask(client, version, file_by_filename=wanted)).name == wanted


def parse(answer):
    packed, = answer.file_descriptor_response.file_descriptor_proto
    return descriptor_pb2.FileDescriptorProto.FromString(packed)


def test_reflection_finds_messages_methods_and_members(server):
    with Rpc(server(counter()).grpc) as client:
        package = "org.pytorch.serve.grpc.inference"
        for symbol, file in ((f"{package}.PredictionsRequest", "inference.proto"),
                             (f"{package}.PredictionsRequest.InputEntry", "inference.proto"),
                             (f"{package}.InferenceAPIsService.Ping", "inference.proto"),
                             ("grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"),
                             ("google.rpc.Status", "google/rpc/status.proto"),
                             ("google.protobuf.Any", "google/protobuf/any.proto")):
            assert parse(ask(client, "v1", file_containing_symbol=symbol)).name == file, symbol
        for question in ({"file_containing_symbol": f"{package}.Nothing"}, {"file_containing_symbol": package},
                         {"file_containing_symbol": ""}, {"file_by_filename": "nothing.proto"},
                         {"all_extension_numbers_of_type": "no.Type"},
                         {"file_containing_extension": {"containing_type": "google.rpc.Status"}}):
            assert ask(client, "v1", **question).error_response.error_code == 5, question
        none = ask(client, "v1", all_extension_numbers_of_type="google.rpc.Status").all_extension_numbers_response
        assert none.base_type_name == "google.rpc.Status" and not none.extension_number


def test_reflection_refuses_a_question_that_asks_nothing(server):
    with Rpc(server(counter()).grpc) as client:
        messages = module("grpc.reflection.v1.reflection_pb2")
        service = module("grpc.reflection.v1.reflection_pb2_grpc").ServerReflectionStub(client.channel)
        error = refused(service.ServerReflectionInfo, iter([messages.ServerReflectionRequest()]), timeout=30)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_keys_are_asked_for_but_not_by_health(server):
    """With --token-auth each port asks for its own key, in the metadata `authorization`."""
    running = server(counter(), flags=["--token-auth"])
    keys = json.loads((running.folder / "key_file.json").read_text())
    with Rpc(running.grpc) as client, Rpc(running.grpc_admin) as admin:
        right = (("authorization", f"Bearer {keys['inference']['key']}"),)
        assert client.predict("counter", 1, "s", metadata=right).prediction == b"1"
        for wrong in (None, (("authorization", "Bearer nonsense"),),
                      (("authorization", f"Bearer {keys['management']['key']}"),)):
            error = refused(client.predict, "counter", 1, "s", metadata=wrong)
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED
            assert error.details().startswith("Token Authorization failed.")
        stream = client.inference.StreamPredictions2(iter(()), timeout=30)
        assert refused(stream.next).code() == grpc.StatusCode.PERMISSION_DENIED
        listing = module("management_pb2").ListModelsRequest(limit=5)
        managing = (("authorization", f"Bearer {keys['management']['key']}"),)
        assert "counter" in admin.management.ListModels(listing, metadata=managing, timeout=30).msg
        assert refused(admin.management.ListModels, listing, metadata=right, timeout=30).code().name == \
            "PERMISSION_DENIED"
        assert client.health.Check(health(), timeout=30).status == 1


def test_the_example_client_streams_files(server, folder):
    """Runs TorchServe's client script as documented, with commas and without."""
    running = server(counter())
    for number in (1, 2, 3):
        (folder / f"{number}.txt").write_text(str(number))
    (folder / "wrong.txt").write_text("no number")

    def run(*args):
        return subprocess.run([sys.executable, ROOT / "examples" / "clients" / "stream.py", "infer_stream2", *args,
                               "--target", running.grpc], capture_output=True, text=True, timeout=limit(60),
                              cwd=folder, check=False)

    commas = run("counter", "seq_0", "1.txt,2.txt,3.txt")
    assert (commas.returncode, commas.stdout) == (0, "1\n3\n6\n"), commas.stderr
    words = run("counter", "seq_0", "1.txt", "2.txt")
    assert (words.returncode, words.stdout) == (0, "7\n9\n"), words.stderr
    assert run("counter", "-", "3.txt").stdout == "3\n"
    failing = run("counter", "seq_0", "wrong.txt", "1.txt")
    assert (failing.returncode, failing.stdout) == (1, "10\n") and "decimal integer" in failing.stderr
    assert "Model not found: nobody" in run("nobody", "s", "1.txt").stderr
