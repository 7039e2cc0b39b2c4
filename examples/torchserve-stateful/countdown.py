"""The running sum of each sequence, in streams: an odd number is answered by a countdown from the
sum, one number a piece; 0 ends the sequence. For TorchServe's sequence-continuous batching.
"""

import json

from continuo import SequenceState


class Countdown:
    def initialize(self, context):
        self.sums = SequenceState()
        self.left = {}  # by request id: the numbers that are still to come

    def handle(self, data, context):
        answers, context.stopping_criteria = [], []
        for index, row in enumerate(data):
            request_id = context.get_request_id(index)
            if row:  # a stream that goes on has no parameters
                self.left[request_id] = self.begin(index, row, context)
            left = self.left[request_id]
            answers.append(f"{left.pop(0)}\n")
            context.stopping_criteria.append(self.criterion(request_id, bool(row)))
        return answers

    def begin(self, index, row, context):
        """The numbers of the answer: the new sum, or a countdown from it."""
        sequence_id = context.get_sequence_id(index)
        number = row.get("data") or row.get("body")
        number = number.decode() if isinstance(number, (bytes, bytearray)) else number
        number = int(json.loads(str(number)))
        total = self.sums.get(sequence_id, 0) + number
        self.sums[sequence_id] = total
        context.set_response_header(index, context.header_key_sequence_id, sequence_id)
        if number == 0:
            context.set_response_header(index, context.header_key_sequence_end, sequence_id)
        return list(range(total, 0, -1)) if number % 2 and total > 0 else [total]

    def criterion(self, request_id, first):
        """Tells whether the stream ends with this number; None: the answer does not stream."""
        def ends(result):
            if self.left[request_id]:
                return False
            del self.left[request_id]
            return None if first else True

        return ends
