"""The four clients of tritonclient with one interface, so that a test can use each of them.

Calls are synchronous here. Those of the aio clients run on a loop of their own."""

import asyncio
import queue

import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from waiting import limit

KINDS = ("http", "http.aio", "grpc", "grpc.aio")
GRPC_KINDS = KINDS[2:]


class Http:
    """The classes InferInput and the like, and the names of arguments that differ."""

    library = tritonclient.http

    @staticmethod
    def url(server):
        return server.inference.removeprefix("http://")

    @staticmethod
    def compress(algorithm):
        return {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}


    @staticmethod
    def sent(answer):
        """Returns the data of each output, or None if it has none."""
        return [output.get("data", output.get("parameters")) for output in answer.get_response()["outputs"]]


class Grpc:
    library = tritonclient.grpc

    @staticmethod
    def sent(answer):
        response = answer.get_response()
        assert len(response.outputs) == len(response.raw_output_contents)
        return [raw or None for raw in response.raw_output_contents]

    @staticmethod
    def url(server):
        return server.grpc

    @staticmethod
    def compress(algorithm):
        return {"compression_algorithm": algorithm}


class Client:
    """What all four clients have in common. A call is a tuple (model, inputs, {arguments of infer})."""

    def tensor(self, name, values, datatype):
        given = self.library.InferInput(name, list(values.shape), datatype)
        given.set_data_from_numpy(values)
        return given

    def shared(self, name, shape, datatype, region, size, offset=0):
        given = self.library.InferInput(name, shape, datatype)
        given.set_shared_memory(region, size, offset)
        return given

    def output(self, name, region=None, size=0, offset=0, **more):
        wanted = self.library.InferRequestedOutput(name, **more)
        if region:
            wanted.set_shared_memory(region, size, offset)
        return wanted


class Sync(Client):
    def __init__(self, server, **options):
        self.client = self.library.InferenceServerClient(self.url(server), **options)

    def do(self, name, *args, **more):
        """Makes any call of the client."""
        return getattr(self.client, name)(*args, **more)

    def infer(self, model, inputs, **more):
        return self.client.infer(model, inputs, **more)

    def close(self):
        self.client.close()


class SyncHttp(Http, Sync):
    def __init__(self, server, **options):
        super().__init__(server, concurrency=16, **options)

    def together(self, calls):
        """Makes all calls at once. Returns results and errors in the order of the calls."""
        return [settle(pending.get_result) for pending in
                [self.client.async_infer(model, inputs, **more) for model, inputs, more in calls]]


class SyncGrpc(Grpc, Sync):
    def together(self, calls):
        heard = queue.Queue()
        for number, (model, inputs, more) in enumerate(calls):
            self.client.async_infer(model, inputs,
                                    lambda result, error, number=number: heard.put((number, error or result)), **more)
        return [answer for _, answer in sorted((heard.get(timeout=limit(60)) for _ in calls), key=lambda pair: pair[0])]

    def stream(self, calls, answers):
        """Sends all requests in one stream. Returns this many answers in the order of their arrival."""
        heard = queue.Queue()
        self.client.start_stream(lambda result, error: heard.put(error or result))
        for model, inputs, more in calls:
            self.client.async_stream_infer(model, inputs, **more)
        found = [heard.get(timeout=limit(60)) for _ in range(answers)]
        self.client.stop_stream()
        assert heard.empty(), "more answers than were waited for"
        return found


class Aio(Client):
    def __init__(self, server, **options):
        self.loop = asyncio.new_event_loop()
        self.client = self.run(self.make(server, **options))

    async def make(self, server, **options):
        return self.aio.InferenceServerClient(self.url(server), **options)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def do(self, name, *args, **more):
        return self.run(getattr(self.client, name)(*args, **more))

    def infer(self, model, inputs, **more):
        return self.run(self.client.infer(model, inputs, **more))

    def together(self, calls):
        async def all_of():
            return await asyncio.gather(*(self.client.infer(model, inputs, **more) for model, inputs, more in calls),
                                        return_exceptions=True)
        return self.run(all_of())

    def close(self):
        self.run(self.client.close())
        self.loop.close()


class AioHttp(Http, Aio):
    aio = tritonclient.http.aio


class AioGrpc(Grpc, Aio):
    aio = tritonclient.grpc.aio

    def stream(self, calls, answers):
        async def requests():
            for model, inputs, more in calls:
                yield {"model_name": model, "inputs": inputs, **more}

        async def all_of():
            return [error or result async for result, error in self.client.stream_infer(requests())]

        found = self.run(asyncio.wait_for(all_of(), limit(60)))
        assert len(found) == answers
        return found


def settle(ask):
    try:
        return ask()
    except Exception as error:  # pylint: disable=broad-exception-caught
        return error


def client_of_kind(kind, server, **options):
    return {"http": SyncHttp, "http.aio": AioHttp, "grpc": SyncGrpc, "grpc.aio": AioGrpc}[kind](server, **options)
