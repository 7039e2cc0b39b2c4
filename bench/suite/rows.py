"""Which systems are compared with which: one table."""

import dataclasses
import typing

from measure import continuo_bench, grpc_bench, post_bench, wrk

#: TorchServe keeps the place of a silent sequence for half a second (torchserve_handler.THEIR_IDLE_MS).
TORCHSERVE_PAUSE_S = 1.0
#: Java compiles what it has run often.
TORCHSERVE_WARM_STEPS = 20000
#: With a tenth more, which are opened before, they fit into the candidates of systems.TRITON_BEST.
OPENED_TYPED = 1000


@dataclasses.dataclass
class Row:
    name: str
    title: str
    system: str  # a key of systems.SYSTEMS
    load: typing.Callable
    base: str = ""  # the row to which this one is compared; by default the group's
    pause_s: float = 0
    warm_steps: int = 0  # how many steps come before the first round
    needs: str = ""  # a program without which the row is left out
    # for the table of facts
    kind: str = "text"
    model: str = "counter"
    opened: int = 0  # sequences to open; 0: this row is not in the table of facts


@dataclasses.dataclass
class Group:
    name: str
    title: str
    about: str
    base: str  # the row to which the others are compared
    rows: list
    connections: tuple = ()  # by default those of --connections


SUM_TEXT, SUM_V2 = continuo_bench("--model", "sum"), continuo_bench("--model", "sum", "--v2")
GROUPS = [
    Group("http", "The counter over HTTP", "A step posts a digit, and the answer is the sum of the sequence. The echoes "
          "send the digit back: they show what sockets and HTTP cost without sequences, workers and commits.", "http-mhd", [
              Row("http-epoll", "ceiling: epoll alone", "epoll", continuo_bench("--echo")),
              Row("http-mhd", "ceiling: libmicrohttpd alone", "mhd", continuo_bench("--echo")),
              Row("http-lua", "Continuo, Lua", "lua", continuo_bench(), opened=100000),
              Row("http-lua-asleep", "Continuo, Lua, `--busy-wait 0`", "lua-asleep", continuo_bench()),
              Row("http-c", "Continuo, C", "c", continuo_bench(), opened=100000),
              Row("http-python", "Continuo, Python", "python", continuo_bench(), opened=100000)]),
    Group("grpc", "The counter over gRPC", "The same counter in Lua. The echo is a server on the bare gRPC C core.",
          "grpc-core-unary", [
              Row("grpc-core-unary", "ceiling: gRPC C core, unary", "grpc-core", grpc_bench("unary", "echo")),
              Row("grpc-unary", "Continuo, `Predictions`", "lua", grpc_bench("unary", "counter")),
              Row("grpc-unary-asleep", "Continuo, `Predictions`, `--busy-wait 0`", "lua-asleep",
                  grpc_bench("unary", "counter")),
              Row("grpc-core-bidi", "ceiling: gRPC C core, stream", "grpc-core", grpc_bench("bidi", "echo"),
                  "grpc-core-bidi"),
              Row("grpc-bidi", "Continuo, `StreamPredictions2`", "lua", grpc_bench("bidi", "counter"), "grpc-core-bidi"),
              Row("grpc-bidi-asleep", "Continuo, `StreamPredictions2`, `--busy-wait 0`", "lua-asleep",
                  grpc_bench("bidi", "counter"), "grpc-core-bidi")]),
    Group("v2", "The v2 protocol", "A model in C gives 16 numbers (FP32) back. The echoes get the same requests.",
          "v2-mhd-binary", [
              Row("v2-mhd-json", "ceiling: libmicrohttpd, the JSON request", "mhd", post_bench("json"), "v2-mhd-json"),
              Row("v2-json", "Continuo, JSON", "identity", post_bench("json"), "v2-mhd-json"),
              Row("v2-mhd-binary", "ceiling: libmicrohttpd, the binary request", "mhd", post_bench("binary")),
              Row("v2-binary", "Continuo, binary tensors", "identity", post_bench("binary")),
              Row("v2-binary-asleep", "Continuo, binary tensors, `--busy-wait 0`", "identity-asleep", post_bench("binary")),
              Row("v2-core-grpc", "ceiling: gRPC C core, `ModelInfer`", "grpc-core", grpc_bench("infer", "identity", 64),
                  "v2-core-grpc"),
              Row("v2-grpc", "Continuo, gRPC `ModelInfer`", "identity", grpc_bench("infer", "identity", 64),
                  "v2-core-grpc")]),
    Group("large", "Bodies of 1 MB and 10 MB", "A model in C gives a tensor back that is 1 MB or 10 MB large, with 4 "
          "requests in flight, and the server does not poll (`--busy-wait 0`). The echoes get the same requests. Between "
          "server and worker the bytes pass through memory that both share.", "mb-mhd", [
              Row("mb-mhd", "ceiling: libmicrohttpd, 1 MB", "mhd", post_bench("1mb")),
              Row("mb-binary", "Continuo, binary tensors, 1 MB", "identity-asleep", post_bench("1mb")),
              Row("mb-core", "ceiling: gRPC C core, 1 MB", "grpc-core", grpc_bench("infer", "identity", 1000000), "mb-core"),
              Row("mb-grpc", "Continuo, gRPC `ModelInfer`, 1 MB", "identity-asleep", grpc_bench("infer", "identity", 1000000),
                  "mb-core"),
              Row("10mb-mhd", "ceiling: libmicrohttpd, 10 MB", "mhd", post_bench("10mb"), "10mb-mhd"),
              Row("10mb-binary", "Continuo, binary tensors, 10 MB", "identity-asleep", post_bench("10mb"), "10mb-mhd"),
              Row("10mb-core", "ceiling: gRPC C core, 10 MB", "grpc-core", grpc_bench("infer", "identity", 10000000),
                  "10mb-core"),
              Row("10mb-grpc", "Continuo, gRPC `ModelInfer`, 10 MB", "identity-asleep", grpc_bench("infer", "identity", 10000000),
                  "10mb-core")], (4,)),
    Group("wrk", "The counter over HTTP, by another load tool", "The same by [wrk](https://github.com/wg/wrk), a load tool "
          "that is not ours. It has threads instead of processes, and a run takes at least a second. It looks at the "
          "status of each answer and not at its body, so afterwards each sequence is asked for its sum, and the sums must "
          "add up to the answers that wrk has counted. The share is the mean of wrk's threads.", "wrk-mhd", [
              Row("wrk-mhd", "ceiling: libmicrohttpd alone", "mhd", wrk("--echo"), needs="wrk"),
              Row("wrk-lua", "Continuo, Lua", "lua", wrk("--model", "counter"), needs="wrk"),
              Row("wrk-lua-asleep", "Continuo, Lua, `--busy-wait 0`", "lua-asleep", wrk("--model", "counter"),
                  needs="wrk")]),
    Group("torchserve", "Beside TorchServe", "Both run the same file, examples/torchserve-stateful/running_sum.py, with "
          "the same Python. TorchServe 0.12 has the settings that bench/torchserve_handler.py --tune found best (2 "
          "workers, batches of 16), and keeps the sums in memory. Continuo commits each step. The echoes get the same "
          "requests.", "ts-theirs", [
              Row("ts-epoll", "ceiling: epoll alone", "epoll", continuo_bench("--model", "sum", "--echo")),
              Row("ts-epoll-polling", "ceiling: epoll alone, polling", "epoll-polling", continuo_bench("--model", "sum", "--echo")),
              Row("ts-ours", "Continuo, the same handler", "same-handler", SUM_TEXT, model="sum", opened=1000),
              Row("ts-theirs", "TorchServe", "torchserve",
                  continuo_bench("--model", "sum", "--header", "ts_request_sequence_id"), pause_s=TORCHSERVE_PAUSE_S,
                  warm_steps=TORCHSERVE_WARM_STEPS, model="sum", opened=1000)]),
    Group("triton", "Beside Triton", "A running sum over v2 JSON. Triton 2.51 and Continuo run the same model.py on the "
          "same model repository, with one instance, the strategy `oldest` and batches of up to 64. A third row has the "
          "same model in Lua. Continuo commits the sums of the Lua model; a model.py keeps its own in memory on both. The "
          "echoes get the same requests.", "tr-theirs", [
              Row("tr-epoll", "ceiling: epoll alone", "epoll", continuo_bench("--model", "sum", "--v2", "--echo")),
              Row("tr-epoll-polling", "ceiling: epoll alone, polling", "epoll-polling",
                  continuo_bench("--model", "sum", "--v2", "--echo")),
              Row("tr-lua", "Continuo, Lua", "sum-lua", SUM_V2, kind="v2", model="sum", opened=OPENED_TYPED),
              Row("tr-ours", "Continuo, the same model.py", "sum-python", SUM_V2, kind="v2", model="sum", opened=OPENED_TYPED),
              Row("tr-theirs", "Triton", "triton", SUM_V2, kind="v2", model="sum", opened=OPENED_TYPED)]),
]
