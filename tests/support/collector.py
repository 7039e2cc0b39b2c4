"""A receiver of traces: OTLP over HTTP. It keeps what it gets, and can refuse, be slow or be away."""

import http.server
import threading

from rpc import module

ALL = {"request", "queue", "batch", "handler", "commit"}  # the spans of a step


def messages():
    """Returns the class of an export request: that of the public definition if its package is installed
    (opentelemetry-proto), which does not know our field numbers, and else the one of proto/otlp.proto."""
    try:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        return ExportTraceServiceRequest
    except ImportError:
        return module("otlp_pb2").ExportRequest


class Span:
    """One span as a test sees it."""

    def __init__(self, span, resource):
        self.name = span.name
        self.kind = int(span.kind)
        self.trace = span.trace_id.hex()
        self.id = span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.state = span.trace_state
        self.begin, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.failed = int(span.status.code) == 2
        self.attributes = _attributes(span.attributes)
        self.resource = resource

    def __repr__(self):
        return f"{self.name} {self.id} of {self.parent or 'nobody'} in {self.trace} {self.attributes}"


def _attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def check_spans(spans, sequence, step, parent=""):
    """The spans of one step, by name: all five, in one trace, with the right parents, in the order of time."""
    assert set(spans) == ALL, spans
    request, queue, batch, handler, commit = (spans[name] for name in ("request", "queue", "batch", "handler",
                                                                       "commit"))
    assert request.parent == parent
    assert (queue.parent, batch.parent) == (request.id, request.id)
    assert (handler.parent, commit.parent) == (batch.id, batch.id)
    assert len({span.id for span in spans.values()}) == 5
    assert len({span.trace for span in spans.values()}) == 1
    for span in spans.values():
        assert span.attributes["continuo.sequence.id"] == sequence
        assert span.attributes["continuo.step"] == step
        assert request.begin <= span.begin <= span.end <= request.end, (span, request)
    assert queue.end <= batch.begin <= handler.begin <= handler.end <= commit.begin <= commit.end <= batch.end


class Collector(http.server.ThreadingHTTPServer):
    """collector.status is what it answers; clear collector.go_on to let requests wait."""

    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.messages = messages()
        self.status = 200
        self.body = b""
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = 0
        self.requests = []  # (path, headers)
        self.spans = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def traces(self):
        """Returns the spans of each trace, by name."""
        found = {}
        for span in list(self.spans):
            found.setdefault(span.trace, {})[span.name] = span
        return found

    def close(self):
        self.go_on.set()
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.server.go_on.wait()
        if self.server.status == 200:
            self.server.requests.append((self.path, dict(self.headers)))
            for resource in self.server.messages.FromString(body).resource_spans:
                about = _attributes(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.server.spans += [Span(span, about) for span in scope.spans]
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_):
        pass
