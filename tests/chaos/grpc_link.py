"""A sequence's connection over gRPC: one StreamPredictions2 call at a time, on a channel that many sequences share. It
has the same methods and the same kinds of failure as link.Link."""

import asyncio
import contextlib

import grpc

from link import DEADLINE_S, Broken, Hung, Reply
from rpc import module, unpack_details

CALLS_A_CHANNEL = 16
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50),
           ("grpc.min_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]


class Channels:
    """The channels are made with the first call, because they must be made in the event loop that uses them."""

    def __init__(self, target):
        self._target = target
        self._channels = []
        self._taken = 0

    def service(self):
        if self._taken % CALLS_A_CHANNEL == 0:
            self._channels.append(grpc.aio.insecure_channel(self._target, OPTIONS))
        self._taken += 1
        return module("inference_pb2_grpc").InferenceAPIsServiceStub(self._channels[-1])


class GrpcLink:
    kind = "grpc"
    parts = False  # a gRPC client always sends whole messages

    def __init__(self, channels):
        self._channels = channels
        self._service = self._call = None

    def close(self, reset=False):
        """A cancelled call always sends RST_STREAM, so `reset` has no effect."""
        del reset
        if self._call is not None:
            self._call.cancel()
        self._call = None

    @staticmethod
    def _message(step):
        inputs = {"data": step.body.encode()}
        if step.end:
            inputs["ts_request_sequence_end"] = b"true"
        if step.key:
            inputs["idempotency-key"] = step.key.encode()
        if step.number:
            inputs["ts-request-sequence-step"] = str(step.number).encode()
        return module("inference_pb2").PredictionsRequest(model_name="sum", input=inputs, sequence_id=step.sequence)

    def _open(self):
        if self._service is None:
            self._service = self._channels.service()
        if self._call is None:
            self._call = self._service.StreamPredictions2()

    async def ask(self, step):
        try:
            async with asyncio.timeout(DEADLINE_S):
                self._open()
                await self._call.write(self._message(step))
                return await self._answer()
        except TimeoutError as e:
            self.close()
            raise Hung(f"no answer within {DEADLINE_S:g} s") from e
        except grpc.aio.AioRpcError as e:
            self.close()
            word = dict(e.trailing_metadata() or ()).get("continuo-error")
            if word:
                return Reply(0, {"continuo-error": word}, e.details().encode())
            raise Broken(f"{e.code().name}: {e.details()}") from e
        except (asyncio.InvalidStateError, grpc.aio.UsageError, EOFError) as e:
            self.close()
            raise Broken(f"{type(e).__name__}: {e}") from e

    async def _answer(self):
        """All parts of a streamed step are dots, except the last one."""
        while True:
            message = await self._call.read()
            if message is grpc.aio.EOF:
                raise EOFError("the stream ended")
            if message.HasField("status") and message.status.code:
                status, details = unpack_details(message.status)
                return Reply(0, {"continuo-error": details["ErrorInfo"].reason}, status.message.encode())
            if message.prediction != b".":
                return Reply(200, {}, message.prediction)

    async def drop(self, step, share, linger_s):
        """Leaves after it has sent a whole request."""
        del share
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            self._open()
            await self._call.write(self._message(step))
            await asyncio.sleep(linger_s)
        self.close()
