"""The model of the chaos test as handler.lua has it, written for TorchServe: its sums are in a
SequenceState, and "~" sends its pieces while the handler still works on the batch."""

import re

from continuo import SequenceState
from ts.handler_utils.utils import send_intermediate_predict_response

COMMAND = re.compile(r"([+~?=])([0-9]*)\Z")


class Sum:
    def initialize(self, context):
        self.states = SequenceState()

    def handle(self, data, context):
        return [self.step(i, row, context) for i, row in enumerate(data)]

    def step(self, i, row, context):
        body = row.get("body", row.get("data"))
        text = body if isinstance(body, str) else bytes(body).decode()
        sequence = context.get_sequence_id(i)
        state = self.states.setdefault(sequence, {"sum": 0, "steps": 0, "order": 0, "padding": ""})
        found = COMMAND.match(text)
        command, number = (found.group(1), found.group(2)) if found else ("", "")
        if command in ("+", "~") and number:
            state["sum"] += int(number)
            state["steps"] += 1
            state["order"] = (state["order"] * 31 + int(number)) % 2147483647
            if command == "~":
                for _ in range(2):
                    send_intermediate_predict_response(
                        ["."], {0: context.get_request_id(i)}, "", 200, context)
        elif command == "=" and number:
            state["padding"] = "x" * int(number)
        elif command != "?":
            context.set_response_status(400, "Bad Request", i)
            return "send +N, ~N, =N or ?"
        return f"{state['sum']} {state['steps']} {state['order']}"
