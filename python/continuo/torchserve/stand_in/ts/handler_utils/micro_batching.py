"""MicroBatching: runs the three methods of a handler on parts of a batch, in threads, so that one
part is prepared while another one is computed.

    self.handle = MicroBatching(self)          # in the handler's __init__
    self.handle.micro_batch_size = 4           # in its initialize
    self.handle.parallelism = {"preprocess": 2, "inference": 1, "postprocess": 2}
"""

import concurrent.futures
import threading
import time

METHODS = ("preprocess", "inference", "postprocess")


class MicroBatching:
    """In place of the handle() of a BaseHandler. The answers are in the order of the requests."""

    def __init__(self, parent_handler, micro_batch_size=1):
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._threads = None
        self.parallelism = {}

    @property
    def parallelism(self):
        """How many parts may be in each method at the same time."""
        return self._parallelism

    @parallelism.setter
    def parallelism(self, parallelism):
        self._parallelism = {name: int(parallelism.get(name, 1)) for name in METHODS}
        self._turns = {name: threading.Semaphore(n) for name, n in self._parallelism.items()}
        self.shutdown()
        self._threads = concurrent.futures.ThreadPoolExecutor(sum(self._parallelism.values()),
                                                              "micro-batch")

    def shutdown(self):
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def __call__(self, data, context):
        return self.handle(data, context)

    def handle(self, data, context):
        begun = time.perf_counter()
        self.handler.context = context
        if self.handler._is_describe():
            output = [self.handler.describe_handle()]
        elif self.handler._is_explain():
            output = self.handler.explain_handle(self.handler.preprocess(data), data)
        else:
            output = self._run(data)
        context.metrics.add_time("HandlerTime", round((time.perf_counter() - begun) * 1000, 2),
                                 None, "ms")
        return output

    def _run(self, data):
        size = max(int(self.micro_batch_size), 1)
        parts = [self._threads.submit(self._run_part, data[at:at + size])
                 for at in range(0, len(data), size)]
        concurrent.futures.wait(parts)  # also if one fails: no part may go on in the next batch
        return [each for part in parts for each in part.result()]

    def _run_part(self, part):
        for name in METHODS:
            with self._turns[name]:
                part = getattr(self.handler, name)(part)
        return part
