"""The running sum of each sequence, as a handler of TorchServe. It runs unchanged on both servers.

With the package continuo the sums are in the states of their sequences, which are committed before
the answers leave; without it they are in the memory of the worker.
"""

import json

try:
    from continuo import SequenceState as Sums
except ImportError:  # on TorchServe
    Sums = dict


class RunningSum:
    def initialize(self, context):
        self.sums = Sums()

    def handle(self, data, context):
        answers = []
        for index, row in enumerate(data):
            sequence_id = context.get_sequence_id(index)
            number = row.get("data") or row.get("body")
            if isinstance(number, (bytes, bytearray)):
                number = number.decode()
            self.sums[sequence_id] = self.sums.get(sequence_id, 0) + int(json.loads(str(number)))
            context.set_response_header(index, context.header_key_sequence_id, sequence_id)
            answers.append(self.sums[sequence_id])
        return answers
