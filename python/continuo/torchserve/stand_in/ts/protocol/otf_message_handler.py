"""Frames of answers, for handlers that write them themselves."""

import struct

from continuo.torchserve.answers import encode


def _text(value):
    encoded = value if isinstance(value, bytes) else value.encode("utf-8")
    return struct.pack("!i", len(encoded)) + encoded


def create_predict_response(ret, req_id_map, message, code, context=None, ts_stream_next=False):
    """A frame with the answers of a batch. The layout is in continuo/torchserve/frames.py."""
    frame = [struct.pack("!i", code), _text(message)]
    for idx, request_id in req_id_map.items():
        headers, kind, status = {}, "", code
        if context is not None:
            if ts_stream_next is True:
                context.set_response_header(idx, "ts_stream_next", "true")
            headers = context.get_response_headers(idx)
            kind = context.get_response_content_type(idx) or ""
            status = context.get_response_status(idx)[0] or 200
        frame += [_text(request_id), _text(kind), struct.pack("!i", status), _text(""),
                  struct.pack("!i", len(headers))]
        for name, value in headers.items():
            frame += [_text(name), _text(value)]
        frame.append(_text(b"error" if ret is None else encode(ret[idx])))
    frame.append(struct.pack("!i", -1))
    return bytearray(b"".join(frame))


def send_intermediate_predict_response(ret, req_id_map, message, code, context=None):
    frame = create_predict_response(ret, req_id_map, message, code, context, True)
    context.cl_socket.sendall(frame)
