#!/usr/bin/env python3
"""Measures what gRPC costs in Python: grpcio's server returns what it gets. bench/grpc.sh --peers runs it.

The handlers get and return bytes, so no protobuf message is made."""

from concurrent import futures

import grpc

SERVICE = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == SERVICE + "Predictions":
            return grpc.unary_unary_rpc_method_handler(lambda message, context: message)
        return grpc.stream_stream_rpc_method_handler(lambda messages, context: messages)


# A stream occupies a thread as long as it is open.
server = grpc.server(futures.ThreadPoolExecutor(max_workers=128), options=[("grpc.max_receive_message_length", -1),
                                                                           ("grpc.max_send_message_length", -1)])
server.add_generic_rpc_handlers([Echo()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"port {port}", flush=True)
server.wait_for_termination()
