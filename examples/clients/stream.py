#!/usr/bin/env python3
"""Sends files as the steps of one sequence over gRPC, and prints the answers.

    examples/clients/stream.py infer_stream2 MODEL SEQUENCE_ID FILE... [--target HOST:PORT]
    examples/clients/stream.py infer_stream2 counter seq_0 one.txt,two.txt,three.txt
    examples/clients/stream.py infer_stream MODEL SEQUENCE_ID FILE...

infer_stream2 sends all files over one stream (StreamPredictions2) and prints one line for each
answer. infer_stream makes a call for each file (StreamPredictions) and prints one line for each piece
of the answer.

The usage is TorchServe's: files may be separated by commas too. "-" as the sequence's id lets the
server make one. Needs grpcio and grpcio-tools (pip install grpcio grpcio-tools), which make the code
of proto/inference.proto when this runs.
"""

import argparse
import pathlib
import sys

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "proto"))
messages, services = grpc.protos_and_services("inference.proto")


def arguments():
    parser = argparse.ArgumentParser(description="Streams files as the steps of one sequence.")
    parser.add_argument("command", choices=["infer_stream2", "infer_stream"])
    parser.add_argument("model")
    parser.add_argument("sequence", help='the sequence\'s id; "-": a new one')
    parser.add_argument("files", nargs="+")
    parser.add_argument("--target", default="localhost:7070")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for the whole stream")
    return parser.parse_args()


def requests(model, sequence, files):
    """All steps at once: the server answers them in their order. The first one names the sequence."""
    for number, path in enumerate(files):
        message = messages.PredictionsRequest(model_name=model, input={"data": path.read_bytes()})
        if number == 0 and sequence != "-":
            message.sequence_id = sequence
        yield message


def answers_to(client, args, files):
    if args.command == "infer_stream2":
        yield from client.StreamPredictions2(requests(args.model, args.sequence, files), timeout=args.timeout)
        return
    for step in requests(args.model, args.sequence, files):
        if args.sequence != "-":
            step.sequence_id = args.sequence
        for answer in client.StreamPredictions(step, timeout=args.timeout):
            args.sequence = answer.sequence_id  # of a sequence that the server has named
            yield answer


def main():
    args = arguments()
    files = [pathlib.Path(name) for word in args.files for name in word.split(",") if name]
    failed = False
    with grpc.insecure_channel(args.target) as channel:
        client = services.InferenceAPIsServiceStub(channel)
        try:
            for answer in answers_to(client, args, files):
                if answer.HasField("status"):
                    failed = True
                    print(f"{answer.sequence_id}: failed: {answer.status.message}", file=sys.stderr)
                else:
                    print(answer.prediction.decode("utf-8", "replace").rstrip("\n"))
        except grpc.RpcError as error:
            sys.exit(f"{args.target}: {error.code().name}: {error.details()}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
