"""context.cl_socket: where a handler writes answers while it still works on a batch.

In TorchServe this is the worker's socket, and a handler, or the function
send_intermediate_predict_response, writes whole frames of TorchServe's protocol to it, one or
several at once. Here each frame is read back, and its pieces go to the requests that it names.

A frame, integers being big-endian int32: code, message, then for each answer: request id, content
type, status, phrase, the number of headers and their names and values, body; -1 ends the frame.
Texts and bytes are preceded by their length.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, NamedTuple, Tuple

INT = struct.Struct("!i")


class Piece(NamedTuple):
    request_id: str
    content_type: str
    status: int
    headers: Dict[str, str]
    body: bytes


class FrameError(ValueError):
    """Bytes that are not a frame of answers."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def integer(self) -> int:
        try:
            (value,) = INT.unpack_from(self.data, self.at)
        except struct.error:
            raise FrameError("context.cl_socket got a part of a frame: give sendall() whole "
                             "frames, as create_predict_response() makes them") from None
        self.at += INT.size
        return int(value)

    def bytes(self, length: int) -> bytes:
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise FrameError("context.cl_socket got bytes that are not a frame of answers")
        taken = bytes(self.data[self.at:end])
        self.at = end
        return taken

    def text(self) -> str:
        return self.bytes(self.integer()).decode("utf-8")


def _read_frame(reader: _Reader) -> Tuple[int, str, List[Piece]]:
    """Reads the code, the message and the answers of one frame."""
    code, message = reader.integer(), reader.text()
    pieces: List[Piece] = []
    while True:
        length = reader.integer()
        if length < 0:
            return code, message, pieces
        request_id = reader.bytes(length).decode("utf-8")
        content_type, status = reader.text(), reader.integer()
        reader.text()  # the reason phrase, which HTTP does not need
        headers: Dict[str, str] = {}
        for _ in range(reader.integer()):
            name = reader.text()
            headers[name] = reader.text()
        body = reader.bytes(reader.integer())
        pieces.append(Piece(request_id, content_type, status, headers, body))


def read(data: bytes) -> List[Tuple[int, str, List[Piece]]]:
    """Reads one or more whole frames, which stand one behind the other."""
    reader = _Reader(data)
    frames = [_read_frame(reader)]
    while reader.at < len(data):
        frames.append(_read_frame(reader))
    return frames


class AnswerSocket:
    """Takes frames, and gives each piece to `take`. If one of the frames cannot be read, none of
    their pieces is given."""

    def __init__(self, take: Callable[[Piece], None]) -> None:
        self._take = take

    def sendall(self, data: bytes) -> None:
        for code, message, pieces in read(bytes(data)):
            if code != 200:
                raise RuntimeError(f"{message} ({code})")
            for piece in pieces:
                self._take(piece)

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)
