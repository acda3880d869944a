"""A run that looks like one of the harness, made by a golden node: batch in array order, one operation at a time."""

from dataclasses import dataclass

import numpy as np
import pytest

from kvnode.models.golden import Answer, GoldenNode
from kvnode.models.golden.directory import Operation
from kvnode.models.golden.lockstep import trace_record
from kvnode.models.spec.batch import RESULT_DTYPE, TRACE_DTYPE
from kvnode.models.spec.enums import Kind
from kvnode.models.spec.messages import REQUEST, RESPONSE
from kvnode.models.spec.requests import Handle

ANSWERED, SKIPPED = 1, 2
#: Statuses of answers that carry a handle: OK, HIT, GRANTED.
WITH_HANDLE = (0, 1, 3)


@dataclass
class MadeRun:
    """What the checkers look at of a run: results, trace, wakes, and the bytes of the answers."""

    results: np.ndarray
    trace: np.ndarray
    wakes: np.ndarray
    answers: list

    def payload(self, index):
        return self.answers[index]


class MadeRuns(GoldenNode):
    """`run(batch, payload)` as the harness has it; state and the order of operations go on from run to run.

    `retire_every`: after so many requests a register write retires the next (partition, model) in turn, and the patrol
    goes a whole round.
    """

    def __init__(self, config, boot_epoch=0):
        super().__init__(config, boot_epoch)
        self.order, self.rows, self.retired = 0, [], 0

    def operate(self, op, cycle=None):
        result = super().operate(op, cycle)
        self.rows.append(trace_record(self.order, 16 * self.order, op, result))
        self.order += 1
        return result

    def retire_next(self):
        count = len(self.partitions)
        partition, model = self.partitions[self.retired % count], self.retired // count % self.config.models
        self.retired += 1
        self.operate(Operation(self.config.ports, Kind.RETIRE_MODEL, partition=partition.number, model_id=model))
        for _ in range(partition.slots):
            self.operate(Operation(self.config.ports, Kind.PATROL, partition=partition.number, slot=partition.patrol))
        self.sweep(partition.number)

    def run(self, batch, payload, retire_every=0):
        self.rows = []
        results = np.zeros(len(batch), RESULT_DTYPE)
        answers = []
        for index, row in enumerate(batch):
            if retire_every and index % retire_every == retire_every - 1:
                self.retire_next()
            fields = REQUEST.unpack(row["header"].tobytes())
            sources = int(row["handle_from"]), int(row["session_from"])
            if any(source >= 0 and not self.gives(results[source], source == sources[0]) for source in sources):
                results[index]["done"] = SKIPPED
                answers.append(b"")
                continue
            if sources[0] >= 0:
                given = {name: int(results[sources[0]]["header"][name]) for name in RESPONSE.fields}
                kept = Handle.of(fields["digest"])._asdict()
                for name in ("slot", "generation", "boot_epoch"):
                    del kept[name]
                if given["flags"] & 2:
                    kept["lease"] = given["watermark"]
                fields["digest"] = self.handle_of(Answer(0, given, b""), **kept)
            if sources[1] >= 0:
                given = results[sources[1]]["header"]
                fields |= {"session": int(given["slot"]), "session_epoch": int(given["generation"])}
            header = REQUEST.pack(**fields)
            start = int(row["payload_offset"])
            answer = self.request(int(row["port"]), header, bytes(payload[start : start + int(row["payload_bytes"])]))
            results[index]["done"], results[index]["tries"] = ANSWERED, 1
            results[index]["header"] = np.frombuffer(RESPONSE.pack(**answer.fields), RESULT_DTYPE["header"])[0]
            answers.append(answer.data)
        trace = np.frombuffer(b"".join(self.rows), TRACE_DTYPE).copy()
        return MadeRun(results, trace, np.zeros(self.config.ports, np.uint64), answers)

    @staticmethod
    def gives(given, handle):
        """Whether an answer gives a handle, or a session."""
        status = int(given["header"]["status"])
        return given["done"] == ANSWERED and (status in WITH_HANDLE if handle else status == 0)


@pytest.fixture
def make_runs():
    """`make_runs(config, boot_epoch=0)`: a golden node that runs batches."""
    return MadeRuns
