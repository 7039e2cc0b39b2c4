"""Makes the calls of the comparison with Triton by hand, where a client library would correct them. Each call returns a
dictionary of parts."""

import http.client
import json
import pathlib
import re
import socket
import sys
import time

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2_grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from v2request import request  # noqa: E402, F401 - a call of its own

HEADERS = ("content-type", "content-encoding", "accept-encoding", "allow")
TIMEOUT_S = 20


def when_free(unregister, limit_s=TIMEOUT_S):
    """Returns the answer to unregistering a shared memory region. Triton holds a region until it has released the
    request, which may be a moment after the answer. So the call is repeated while the region is in use."""
    until = time.monotonic() + limit_s
    while True:
        answer = unregister()
        if "it is currently in use" not in str(answer) or time.monotonic() > until:
            return answer
        time.sleep(0.01)


def canonical(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def parts_of_json(text, prefix="body"):
    """Makes a part of each member of a document, so that a difference in one member leaves the others compared."""
    try:
        document = json.loads(text)
    except ValueError:
        return {prefix: text}
    if isinstance(document, dict) and document:
        return {f"{prefix}.{key}": canonical(value) for key, value in document.items()}
    return {prefix: canonical(document)}


def decoded(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def events(text):
    """Returns each event of a stream with its members in one order."""
    lines = []
    for line in text.split("\n"):
        try:
            lines.append("data: " + canonical(json.loads(line[6:])) if line.startswith("data: ") else line)
        except ValueError:
            lines.append(line)
    return "\n".join(lines)


def answer_of(response, data):
    """Returns the parts of an HTTP answer."""
    made = {"status": response.status}
    for name in HEADERS:
        if response.getheader(name) is not None:
            made[f"header {name}"] = response.getheader(name)
    length = response.getheader("Inference-Header-Content-Length")
    if length is not None and not response.getheader("Content-Encoding"):
        made["binary"] = data[int(length):].hex()
        data = data[:int(length)]
    if made.get("header content-type", "").startswith("text/event-stream"):
        made["events"] = events(decoded(data))
        return made
    made.update(parts_of_json(decoded(data)))
    return made


def call(side, method, path, body=None, **headers):
    """Makes one request over a connection of its own. A body that is a dictionary or list is sent as JSON."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    connection = http.client.HTTPConnection(side.http, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body if not isinstance(body, str) else body.encode(),
                           {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return answer_of(response, response.read())
    except (OSError, http.client.HTTPException) as error:
        return {"status": f"no answer: {type(error).__name__}"}
    finally:
        connection.close()


def raw(side, data):
    """Sends bytes as they are, and returns the answer's parts."""
    host, port = side.http.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as wire:
        wire.sendall(data)
        response = http.client.HTTPResponse(wire)
        try:
            response.begin()
            return answer_of(response, response.read())
        except (OSError, http.client.HTTPException) as error:
            return {"status": f"no answer: {type(error).__name__}"}


# --- gRPC


def stub_of(side):
    if side.channel is None:
        side.channel = grpc.insecure_channel(side.grpc, [("grpc.max_receive_message_length", -1),
                                                         ("grpc.use_local_subchannel_pool", 1)])
    return service_pb2_grpc.GRPCInferenceServiceStub(side.channel)


def parts_of_message(message, prefix=""):
    document = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return {f"{prefix}{key}": canonical(value) for key, value in document.items()}


def failure(error):
    return {"code": error.code().name, "details": error.details()}


def rpc(side, name, message, metadata=()):
    try:
        answer = getattr(stub_of(side), name)(message, timeout=TIMEOUT_S, metadata=metadata)
    except grpc.RpcError as error:
        return failure(error)
    return {"code": "OK", **parts_of_message(answer)}


def stream(side, messages, metadata=()):
    """Sends all requests, half-closes the stream, and reads to the end."""
    made, n = {}, 0
    try:
        for answer in stub_of(side).ModelStreamInfer(iter(messages), timeout=TIMEOUT_S, metadata=metadata):
            made.update(parts_of_message(answer, f"{n:02} "))
            n += 1
        made["code"] = "OK"
    except grpc.RpcError as error:
        made.update(failure(error))
    made["responses"] = n
    return made


def slug(text):
    """Returns a case's name in one line and without blanks at its ends."""
    return re.sub(r"\s+", " ", str(text)).strip()[:120]
