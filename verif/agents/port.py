"""Messages on a port of the node: requests go out as beats, responses come back as fields and bytes.

Used by: node bench, speed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, ResponseFlag
from kvnode.models.spec.messages import REQUEST, RESPONSE, VERSION

from .stream import Sink, Source

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["NodePort", "Request"]


def _never() -> bool:
    return False


@dataclass
class Request:
    """A message and, once `done`, its answer: `response` (packed) and the `data` behind it. `note` is the caller's.

    The last beat of the message was taken in `sent_cycle`, the first and the last beat of the answer in the others.
    """

    header: bytes
    payload: bytes
    note: Any = None
    done: bool = False
    response: bytes = b""
    data: bytes = b""
    sent_cycle: int = 0
    first_cycle: int = 0
    last_cycle: int = 0


class NodePort:
    """Port `number` of a node whose pins are those of `rtl.elaborate.Top`.

    `send` queues a message; its answer is the first that comes after those of the messages before it. `answered` is
    called with each request when its answer is complete, and `woken` with the cycle of each wake, which answers none.
    Raises AssertionError for an answer that nobody asked for, with another tag or opcode, of a length that its header
    does not announce, or that began before the request was sent, and for a wake that says more than that it is one.
    """

    def __init__(
        self,
        bench: "Bench",
        config: NodeConfig,
        number: int,
        idle: Callable[[], bool] = _never,
        backpressure: Callable[[], bool] = _never,
        answered: Callable[[Request], None] = lambda request: None,
        woken: Callable[[int], None] = lambda cycle: None,
    ):
        self.bench, self.config, self.number, self.answered, self.woken = bench, config, number, answered, woken
        beats = ("data", "last")
        self._source = Source(bench, f"p{number}_req_", beats, idle, self._accepted)
        Sink(bench, f"p{number}_rsp_", beats, backpressure, self._beat)
        self.sending: deque[Request] = deque()
        self.waiting: deque[Request] = deque()
        self._received = bytearray()
        self._first_cycle = 0

    def send(self, header: bytes, payload: bytes = b"", note: Any = None, beats: int | None = None) -> Request:
        """Queue a message: a packed REQUEST and its payload; `beats` cuts the message off early."""
        request = Request(header, payload, note)
        size = self.config.beat_bytes
        message = header + payload
        words = [int.from_bytes(message[at : at + size], "little") for at in range(0, len(message), size)][:beats]
        self._source.queue.extend((word, int(i == len(words) - 1)) for i, word in enumerate(words))
        self.sending.append(request)
        return request

    @property
    def busy(self) -> bool:
        return bool(self.sending or self.waiting)

    @property
    def outstanding(self) -> int:
        return len(self.sending) + len(self.waiting)

    def _accepted(self, item: tuple[int, ...], cycle: int) -> None:
        if item[1]:
            request = self.sending.popleft()
            request.sent_cycle = cycle
            self.waiting.append(request)

    def _beat(self, item: tuple[int, ...], cycle: int) -> None:
        word, last = item
        if not self._received:
            self._first_cycle = cycle
        self._received += word.to_bytes(self.config.beat_bytes, "little")
        if not last:
            return
        received, self._received = bytes(self._received), bytearray()
        where = f"port {self.number}, cycle {cycle}"
        header_bytes = self.config.response_beats * self.config.beat_bytes
        assert len(received) >= header_bytes, f"{where}: the answer ends in its header"
        response = RESPONSE.unpack(received[: RESPONSE.size_bytes])
        if response["flags"] & ResponseFlag.WAKE:
            said = {name for name, value in response.items() if value and name not in ("version", "boot_epoch")}
            assert said == {"flags"} and response["version"] == VERSION, f"{where}: a wake with {said}"
            assert len(received) == header_bytes, f"{where}: a wake with payload"
            self.woken(cycle)
            return
        assert self.waiting, f"{where}: an answer that nobody asked for"
        request = self.waiting.popleft()
        asked = REQUEST.unpack(request.header)
        for name in ("tag", "opcode"):
            assert response[name] == asked[name], f"{where}: {name} {response[name]} for {asked}"
        data = received[header_bytes:]
        leased = response["opcode"] == Opcode.MATCH and response["flags"] & ResponseFlag.LEASED
        length = response["length"] if response["opcode"] == Opcode.READ or leased else 0
        expected = -(-length // self.config.beat_bytes) * self.config.beat_bytes
        assert len(data) == expected, f"{where}: {len(data)} bytes follow a header that announces {length}"
        assert not any(data[length:]), f"{where}: the last beat is not filled up with zeroes"
        assert self._first_cycle > request.sent_cycle, f"{where}: the answer came before the request's end"
        request.response, request.data, request.done = received[: RESPONSE.size_bytes], data[:length], True
        request.first_cycle, request.last_cycle = self._first_cycle, cycle
        self.answered(request)
