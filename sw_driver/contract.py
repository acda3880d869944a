"""What every transport, and the client on it, must do: test classes that each implementation is put through.

Subclass in a test module and give `make`, or a `transport` fixture; pytest finds the inherited tests. What takes
time on a node with a clock is waited for.

Used by: tests/sw_driver (golden), verif.test_transports (RTL).
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.causes import Cause
from kvnode.models.spec.clock import TIME_BITS, TTL_TICKS
from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.spec.enums import Flag, Kind, Opcode, Status
from kvnode.models.spec.messages import HANDLE, NUMBERED, REQUEST, VERSION
from kvnode.models.spec.requests import BY_HANDLE_ONLY, OF_SESSION, WITH_PAYLOAD, check_request
from kvnode.models.spec.sessions import WINDOW

from .batch import BatchBuilder
from .client import BlockHandle, Client, Session
from .errors import (
    ChecksumMismatch,
    DeadlineExpired,
    KvError,
    NotReady,
    QuotaExceeded,
    RegisterError,
    StaleEpoch,
    StaleHandle,
)
from .events import (
    AllBlocksCleared,
    BlockPoisoned,
    BlockRemoved,
    BlockStored,
    EventReader,
    Lost,
    ModelRetired,
    PortDown,
    SessionMoved,
    drain,
)
from .keys import truncated
from .transport import ANSWERED, SKIPPED, Batch, RunResult, Transport

Change = Callable[[NodeConfig], dict[str, int]]


def digest_of(config: NodeConfig, number: int) -> bytes:
    """A digest that differs in its lowest bits: fits every configuration."""
    return truncated((number + 1).to_bytes(2, "little") + bytes([number & 255]) * 30, config.digest_bits)


def content_of(config: NodeConfig, number: int) -> bytes:
    """A whole block of bytes, other ones in every beat."""
    return random.Random(number).randbytes(config.block_bytes)


class _Suite:
    PRESET = "tiny"

    def make(self, config: NodeConfig, boot_epoch: int = 0) -> Transport:
        raise NotImplementedError

    @pytest.fixture
    def config(self) -> NodeConfig:
        return preset(self.PRESET)

    @pytest.fixture
    def transport(self, config: NodeConfig) -> Iterator[Transport]:
        transport = self.make(config, boot_epoch=3)
        yield transport
        transport.close()

    @pytest.fixture
    def client(self, transport: Transport) -> Client:
        return Client(transport, partition=transport.config.partition_of_port[1], model_id=1)

    def _run(self, transport: Transport, builder: BatchBuilder, **options: Any) -> RunResult:
        batch, payload = builder.build()
        return transport.run(batch, payload, **options)

    def _status(self, result: RunResult) -> list[str]:
        rows = zip(result.results["done"].tolist(), result.results["header"]["status"].tolist())
        return ["SKIPPED" if done == SKIPPED else Status(status).name for done, status in rows]

    def _handles(self, client: Client | Session, digests: list[bytes]) -> list[BlockHandle]:
        """Handles of blocks that are there."""
        handles = [reply.require().handle for reply in client.lookup(digests)]
        return [handle for handle in handles if handle is not None]

    def _wait_ticks(self, transport: Transport, ticks: int) -> None:
        transport.wait(ticks << transport.config.tick_cycles_log2)

    def _of_partition(self, client: Client, name: str) -> int:
        """Address of a register of the client's partition."""
        address = getattr(registers, f"PARTITION_{name}_ADDRESS")
        return int(address) + client.partition * registers.PARTITION_STRIDE_BYTES

    def _settled(self, client: Client, name: str, value: int | range) -> bool:
        """Whether a register of the partition comes to hold a value, or one of a range, while the sweeper works."""
        wanted = range(value, value + 1) if isinstance(value, int) else value
        for _ in range(50):
            if client.transport.read_register(self._of_partition(client, name)) in wanted:
                return True
            client.transport.wait(2_000)
        return False

    def _begin(self, client: Client, digest: bytes, **fields: Any) -> None:
        """Somebody who names no session begins a block and leaves it at that."""
        builder = BatchBuilder(client.config)
        length = fields.pop("length", client.config.block_bytes)
        port = client.ports[0]
        builder.add(Opcode.PUT_START, port, digest=digest, model_id=client.model_id, length=length, **fields)
        assert self._status(self._run(client.transport, builder)) == ["GRANTED"]

    def _fill(self, client: Client, count: int) -> list[bytes]:
        """Seal blocks 0 to count - 1."""
        digests = [digest_of(client.config, number) for number in range(count)]
        replies = client.put((digest, content_of(client.config, n)) for n, digest in enumerate(digests))
        assert [reply.status for reply in replies] == [Status.SEALED] * count
        return digests


class BatchContract(_Suite):
    """Order, handles and skipping (spec.batch)."""

    def test_whole_put_and_read_give_the_bytes_back(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        ((_, _, end),) = builder.puts(1, [(digest_of(config, 1), content_of(config, 1))])
        read = builder.read(1, digest_of(config, 1))
        result = self._run(transport, builder)
        assert (result.results["done"] == ANSWERED).all()
        assert Status(int(result.results["header"]["status"][end])) == Status.SEALED
        assert bytes(result.payload(read)) == content_of(config, 1)
        assert bytes(result.payload(end)) == b""

    def test_answer_carries_opcode_tag_version_and_boot_epoch(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        for _ in range(3):
            builder.add(Opcode.PING, 0)
        batch, payload = builder.build()
        batch["header"]["tag"] = (7, 0xFFFF, 0)
        header = transport.run(batch, payload).results["header"]
        assert header["tag"].tolist() == [7, 0xFFFF, 0]
        assert set(header["opcode"].tolist()) == {int(Opcode.PING)}
        assert set(header["version"].tolist()) == {VERSION}
        assert set(header["boot_epoch"].tolist()) == {3}

    def test_request_whose_handle_was_not_granted_is_skipped(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        for _ in range(2):
            builder.puts(1, [(digest_of(config, 1), content_of(config, 1)[: config.max_payload_bytes])], rows=1)
        names = self._status(self._run(transport, builder))
        assert names == ["GRANTED", "OK", "SEALED", "EXISTS", "SKIPPED", "SKIPPED"]

    def test_skipped_request_counts_as_answered(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        miss = builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 9))
        skipped = builder.add(Opcode.PUT_END, 1, handle_from=miss)
        chained = builder.add(Opcode.PUT_REVOKE, 0, handle_from=skipped)
        builder.add(Opcode.PING, 1, after=skipped)
        builder.add(Opcode.PING, 0, after=chained)
        assert self._status(self._run(transport, builder)) == ["MISS", "SKIPPED", "SKIPPED", "OK", "OK"]

    def test_lookup_gives_a_handle_to_read_and_drop_by(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.puts(1, [(digest_of(config, 1), content_of(config, 1))])
        hit = builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 1))
        read = builder.add(Opcode.READ, 1, handle_from=hit, by_handle=True)
        builder.add(Opcode.DROP, 1, handle_from=hit, by_handle=True)
        builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 1))
        result = self._run(transport, builder)
        assert self._status(result)[-4:] == ["HIT", "OK", "OK", "MISS"]
        assert bytes(result.payload(read)) == content_of(config, 1)

    def test_match_counts_leading_hits_only(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.puts(1, [(digest_of(config, 1), content_of(config, 1))])
        (good,) = builder.match(1, [digest_of(config, 1), digest_of(config, 2)])
        (bad,) = builder.match(1, [digest_of(config, 2), digest_of(config, 1)])
        header = self._run(transport, builder).results["header"]
        assert header["count"][[good, bad]].tolist() == [1, 0]
        assert header["status"][[good, bad]].tolist() == [Status.HIT, Status.MISS]

    def test_answer_to_a_read_carries_the_checksum_of_the_block(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.puts(1, [(digest_of(config, 1), content_of(config, 1))])
        read = builder.read(1, digest_of(config, 1))
        header = self._run(transport, builder).results["header"][read]
        assert int(header["crc"]) == crc32c(content_of(config, 1))
        assert int(header["watermark"]) == config.block_bytes

    def test_bytes_with_another_checksum_are_refused_and_gone(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        data = content_of(config, 1)[: config.max_payload_bytes]
        start = builder.add(Opcode.PUT_START, 1, digest=digest_of(config, 1), length=len(data))
        builder.add(Opcode.WRITE, 1, handle_from=start, length=len(data), payload=data)
        builder.add(Opcode.PUT_END, 1, handle_from=start, crc=crc32c(data) ^ 1)
        builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 1))
        assert self._status(self._run(transport, builder)) == ["GRANTED", "OK", "CHECKSUM_MISMATCH", "MISS"]

    def test_session_of_an_answer_is_copied_beside_the_handle(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        data = content_of(config, 1)[: config.max_payload_bytes]
        opened = builder.add(Opcode.SESSION_OPEN, 1)
        ((start, _, _),) = builder.puts(1, [(digest_of(config, 1), data)], session_from=opened, numbers=[1])
        fence = builder.add(Opcode.SESSION_FENCE, 1, session_from=opened, sequence=1)
        builder.add(Opcode.READ, 1, session_from=opened, handle_from=start, by_handle=True, sequence=1)
        builder.add(Opcode.SESSION_CLOSE, 1, session_from=opened)
        result = self._run(transport, builder)
        assert self._status(result) == ["OK", "GRANTED", "OK", "SEALED", "OK", "OK", "OK"]
        header = result.results["header"]
        assert header["slot"][opened] == header["slot"][fence] and int(header["slot"][opened]) & NUMBERED
        assert int(header["watermark"][fence]) == 1

    def test_request_whose_session_was_not_opened_is_skipped(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        for _ in range(config.sessions):
            builder.add(Opcode.SESSION_OPEN, 1)
        refused = builder.add(Opcode.SESSION_OPEN, 1)
        builder.add(Opcode.SESSION_CLOSE, 1, session_from=refused)
        builder.add(Opcode.PING, 1)
        assert self._status(self._run(transport, builder))[-2:] == ["SKIPPED", "OK"]

    def test_lease_of_an_answer_is_copied_with_the_handle(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        data = content_of(config, 1)[: config.max_payload_bytes]
        builder.puts(1, [(digest_of(config, 1), data)])
        found = builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 1), lock=True)
        builder.add(Opcode.DROP, 1, digest=digest_of(config, 1))
        builder.add(Opcode.RELEASE, 1, handle_from=found)
        builder.add(Opcode.DROP, 1, digest=digest_of(config, 1))
        assert self._status(self._run(transport, builder))[-4:] == ["HIT", "BUSY", "OK", "OK"]

    def test_runs_of_a_read_stay_when_the_handle_is_copied(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        beat, data = config.beat_bytes, content_of(config, 1)
        builder.puts(1, [(digest_of(config, 1), data)])
        found = builder.add(Opcode.LOOKUP, 1, digest=digest_of(config, 1))
        read = builder.add(
            Opcode.READ, 1, handle_from=found, by_handle=True, offset=beat, length=beat, stride=3 * beat, count=2
        )
        result = self._run(transport, builder)
        assert bytes(result.payload(read)) == data[beat : 2 * beat] + data[4 * beat : 5 * beat]

    def test_patience_ends_with_not_ready(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.add(Opcode.PUT_START, 1, digest=digest_of(config, 1), length=config.beat_bytes)
        builder.add(Opcode.READ, 1, digest=digest_of(config, 1), patience=500)
        builder.add(Opcode.PING, 1)
        assert self._status(self._run(transport, builder)) == ["GRANTED", "NOT_READY", "OK"]

    def test_state_stays_from_run_to_run(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.puts(0, [(digest_of(config, 1), content_of(config, 1))])
        self._run(transport, builder)
        builder = BatchBuilder(config)
        builder.read(0, digest_of(config, 1))
        assert bytes(self._run(transport, builder).payload(0)) == content_of(config, 1)

    def test_idle_and_backpressure_change_no_answer(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        builder.puts(0, [(digest_of(config, 1), content_of(config, 1))])
        builder.read(0, digest_of(config, 1))
        result = self._run(transport, builder, idle=0.6, backpressure=0.7, seed=5)
        result.require_answers(builder.build()[0])
        assert bytes(result.payload(len(builder) - 1)) == content_of(config, 1)

    def test_empty_batch_is_answered(self, transport: Transport) -> None:
        assert len(transport.run(np.zeros(0, BATCH_DTYPE)).results) == 0

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [("after", 0, "not an earlier request"), ("handle_from", -2, "not an earlier request"),
         ("session_from", 1, "not an earlier request"), ("port", 64, "port 64"),
         ("payload_bytes", 99, "payload ends at byte 99 of 0")],
    )  # fmt: skip
    def test_batch_that_means_nothing_is_refused(
        self, transport: Transport, config: NodeConfig, field: str, value: int, message: str
    ) -> None:
        builder = BatchBuilder(config)
        builder.add(Opcode.PING, 0)
        batch, payload = builder.build()
        batch[field] = value
        with pytest.raises(ValueError, match=message):
            transport.run(batch, payload)

    def test_retired_model_is_gone_and_others_stay(self, transport: Transport, config: NodeConfig) -> None:
        builder = BatchBuilder(config)
        for model_id in (0, 1):
            builder.puts(1, [(digest_of(config, 1), content_of(config, model_id))], model_id=model_id)
        self._run(transport, builder)
        transport.retire_model(config.partition_of_port[1], 1)
        builder = BatchBuilder(config)
        kept = builder.read(1, digest_of(config, 1), model_id=0)
        builder.read(1, digest_of(config, 1), model_id=1)
        result = self._run(transport, builder)
        assert self._status(result) == ["OK", "MISS"]
        assert bytes(result.payload(kept)) == content_of(config, 0)


class _Flipping:
    """A transport that delivers one wrong bit in every payload."""

    def __init__(self, transport: Transport):
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def run(self, batch: Batch, payload: bytes = b"", **options: Any) -> RunResult:
        result = self._transport.run(batch, payload, **options)
        data = bytearray(result.data)
        for offset in result.results["data_offset"][result.results["data_bytes"] > 0].tolist():
            data[offset] ^= 16
        return RunResult(result.results, memoryview(data), result.cycles, result.operation_count)


class ClientContract(_Suite):
    """What a program sees."""

    def test_what_was_put_can_be_matched_and_read(self, client: Client, config: NodeConfig) -> None:
        digests = [digest_of(config, number) for number in range(3)]
        put = client.put((digest, content_of(config, number)) for number, digest in enumerate(digests[:2]))
        assert [reply.status for reply in put] == [Status.SEALED] * 2
        assert client.match(digests) == 2
        replies = client.read(digests)
        assert [reply.status for reply in replies] == [Status.OK, Status.OK, Status.MISS]
        assert [reply.data for reply in replies] == [content_of(config, 0), content_of(config, 1), None]

    def test_second_put_of_a_key_keeps_the_first_bytes_and_says_so(self, client: Client, config: NodeConfig) -> None:
        for number, status in ((0, Status.SEALED), (1, Status.EXISTS)):
            (reply,) = client.put([(digest_of(config, 0), content_of(config, number))])
            assert reply.status == status
        assert reply.mooncake == -705
        assert client.get(digest_of(config, 0)) == content_of(config, 0)

    def test_missing_block_is_an_error_with_its_numbers(self, client: Client, config: NodeConfig) -> None:
        with pytest.raises(KvError, match=r"MISS \(-704\)") as caught:
            client.get(digest_of(config, 0))
        assert (caught.value.status, caught.value.mooncake) == (Status.MISS, -704)

    def test_short_block_and_part_of_a_block_are_read(self, client: Client, config: NodeConfig) -> None:
        beat = config.beat_bytes
        client.put([(digest_of(config, 0), content_of(config, 0)[: 3 * beat])])
        assert client.get(digest_of(config, 0)) == content_of(config, 0)[: 3 * beat]
        (reply,) = client.read([digest_of(config, 0)], offset=beat, length=beat)
        assert reply.data == content_of(config, 0)[beat : 2 * beat]
        (reply,) = client.read([digest_of(config, 0)], offset=beat, length=3 * beat)
        assert (reply.status, reply.data) == (Status.BAD_REQUEST, None)

    def test_wrong_byte_of_a_whole_block_is_noticed(self, client: Client, config: NodeConfig) -> None:
        (digest,) = self._fill(client, 1)
        wrong = Client(_Flipping(client.transport), client.partition, model_id=1)  # type: ignore[arg-type]
        assert [(reply.status, reply.data) for reply in wrong.read([digest])] == [(Status.CHECKSUM_MISMATCH, None)]
        assert wrong.read([digest], length=config.block_bytes)[0].status == Status.CHECKSUM_MISMATCH
        with pytest.raises(ChecksumMismatch, match=r"CHECKSUM_MISMATCH \(-801\)"):
            wrong.get(digest)

    def test_handle_reads_its_block_until_it_is_gone(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 2)
        handles = self._handles(client, digests)
        assert [reply.data for reply in client.read(handles)] == [content_of(config, 0), content_of(config, 1)]
        assert client.drop(handles[:1])[0].ok
        assert [reply.status for reply in client.read(handles)] == [Status.STALE_HANDLE, Status.OK]
        with pytest.raises(StaleHandle):
            client.read(handles[:1])[0].require()

    @pytest.mark.parametrize("named", ["digest", "handle"])
    def test_two_dimensional_read_gives_every_run(self, client: Client, config: NodeConfig, named: str) -> None:
        digests = self._fill(client, 2)
        beat = config.beat_bytes
        blocks: list[Any] = self._handles(client, digests) if named == "handle" else list(digests)
        for offset, run, stride, count in ((0, 1, 2, 3), (1, 2, 3, 2), (2, 1, 0, 4), (0, config.block_beats, 0, 1)):
            replies = client.read_runs(blocks, offset * beat, run * beat, stride * beat, count)
            for number, reply in enumerate(replies):
                data = content_of(config, number)
                starts = [(offset + index * stride) * beat for index in range(count)]
                assert reply.data == b"".join(data[start : start + run * beat] for start in starts)

    def test_runs_outside_of_the_block_are_refused(self, client: Client, config: NodeConfig) -> None:
        beat = config.beat_bytes
        client.put([(digest_of(config, 0), content_of(config, 0)[: 3 * beat])])
        replies = client.read_runs([digest_of(config, 0), digest_of(config, 1)], 0, beat, 3 * beat, 2)
        assert [reply.status for reply in replies] == [Status.BAD_REQUEST, Status.MISS]
        with pytest.raises(ValueError, match=f"a block has {config.block_bytes} bytes"):
            client.read_runs([digest_of(config, 0)], 0, beat, beat, config.block_beats + 1)
        with pytest.raises(ValueError, match="stride = 1"):
            client.read_runs([digest_of(config, 0)], 0, beat, 1, 2)

    def test_block_being_written_is_waited_for_as_long_as_is_said(self, client: Client, config: NodeConfig) -> None:
        self._begin(client, digest_of(config, 0))
        (reply,) = client.read([digest_of(config, 0)])
        assert (reply.status, reply.mooncake) == (Status.NOT_READY, -703)
        (reply,) = client.read([digest_of(config, 0)], patience_cycles=500)
        assert (reply.status, reply.mooncake) == (Status.DEADLINE, -901)
        with pytest.raises(NotReady):
            client.match([digest_of(config, 0)])
        with pytest.raises(DeadlineExpired):
            client.match([digest_of(config, 0)], patience_cycles=500)

    def test_block_that_is_not_sealed_in_time_is_given_up(self, client: Client, config: NodeConfig) -> None:
        self._begin(client, digest_of(config, 0), deadline=1)
        self._wait_ticks(client.transport, 3)
        assert self._settled(client, "FILL_ROWS_USED", 0)
        assert client.lookup([digest_of(config, 0)])[0].status == Status.MISS

    def test_block_goes_when_its_time_to_live_is_over(self, client: Client, config: NodeConfig) -> None:
        client.put([(digest_of(config, 0), content_of(config, 0))], ttl=1)
        client.put([(digest_of(config, 1), content_of(config, 1))])
        self._wait_ticks(client.transport, 2 * TTL_TICKS)
        assert self._settled(client, "FREE_SLOTS", config.partitions[client.partition].slots - 1)
        assert [reply.status for reply in client.lookup([digest_of(config, n) for n in (0, 1)])] == [
            Status.MISS,
            Status.HIT,
        ]

    def test_dropped_block_is_gone_and_can_be_put_again(self, client: Client, config: NodeConfig) -> None:
        client.put([(digest_of(config, 0), content_of(config, 0))])
        assert [reply.status for reply in client.drop([digest_of(config, 0)] * 2)] == [Status.OK, Status.MISS]
        assert client.lookup([digest_of(config, 0)])[0].status == Status.MISS
        for _ in range(20):  # Until the sweeper has taken the entry out, the key is BUSY.
            (reply,) = client.put([(digest_of(config, 0), content_of(config, 1))])
            if reply.status == Status.SEALED:
                break
        assert client.get(digest_of(config, 0)) == content_of(config, 1)

    def test_retired_model_is_a_miss(self, client: Client, config: NodeConfig) -> None:
        client.put([(digest_of(config, 0), content_of(config, 0))])
        client.retire_model()
        assert client.match([digest_of(config, 0)]) == 0

    def test_tenants_do_not_see_each_other(self, transport: Transport, config: NodeConfig) -> None:
        ours, theirs = (Client(transport, partition=number) for number in (0, 1))
        ours.put([(digest_of(config, 0), content_of(config, 0))])
        assert theirs.match([digest_of(config, 0)]) == 0
        assert theirs.drop([digest_of(config, 0)])[0].status == Status.MISS
        assert ours.get(digest_of(config, 0)) == content_of(config, 0)

    def test_more_blocks_than_slots_all_get_an_answer(self, client: Client, config: NodeConfig) -> None:
        count = 5 * config.partitions[client.partition].slots
        replies = client.put((digest_of(config, n), content_of(config, n)) for n in range(count))
        assert len(replies) == count
        assert {reply.status for reply in replies} <= {Status.SEALED, Status.NO_SPACE, Status.BUSY}
        kept = [n for n, reply in enumerate(client.read(digest_of(config, n) for n in range(count))) if reply.ok]
        assert kept
        assert all(client.get(digest_of(config, n)) == content_of(config, n) for n in kept)

    def test_match_is_split_over_messages_and_stops_at_the_first_miss(self, client: Client, config: NodeConfig) -> None:
        client.put([(digest_of(config, 0), content_of(config, 0))])
        longer = [digest_of(config, 0)] * (2 * config.max_match_digests + 1)
        assert client.match(longer) == len(longer)
        longer[config.max_match_digests] = digest_of(config, 1)
        assert client.match(longer) == config.max_match_digests

    def test_ping_is_answered(self, client: Client) -> None:
        client.ping()

    def test_wrong_arguments_are_refused_before_anything_is_sent(self, client: Client, config: NodeConfig) -> None:
        digest = digest_of(config, 0)
        with pytest.raises(ValueError, match=f"data of {config.beat_bytes + 1} bytes"):
            client.put([(digest, bytes(config.beat_bytes + 1))])
        with pytest.raises(ValueError, match="digest of 31 bytes"):
            client.read([digest[:31]])
        with pytest.raises(ValueError, match="offset = 1"):
            client.read([digest], offset=1)
        with pytest.raises(ValueError, match="after = 1: only a session has numbers"):
            client.match([digest], after=1)
        with pytest.raises(ValueError, match="ttl = 256"):
            client.put([(digest, bytes(config.beat_bytes))], ttl=256)
        with pytest.raises(ValueError, match="patience_cycles = -1"):
            client.read([digest], patience_cycles=-1)
        with pytest.raises(ValueError, match="model_id = 99"):
            Client(client.transport, model_id=99)
        with pytest.raises(ValueError, match="does not belong to partition"):
            Client(client.transport, partition=0, ports=[config.partitions[1].ports[0]])


class MemberContract(_Suite):
    """One block of several writers."""

    def _shards(self, config: NodeConfig, members: int, number: int = 0) -> list[bytes]:
        size = config.block_beats // members * config.beat_bytes
        data = content_of(config, number)
        return [data[index * size : (index + 1) * size] for index in range(members)]

    @pytest.mark.parametrize("members", [1, 2, 3, 8])
    def test_block_of_all_ranks_is_read_as_one(self, client: Client, config: NodeConfig, members: int) -> None:
        blocks = [(digest_of(config, number), self._shards(config, members, number)) for number in range(3)]
        assert [reply.status for reply in client.put(blocks)] == [Status.SEALED] * 3
        replies = client.read(digest for digest, _ in blocks)
        assert [reply.data for reply in replies] == [b"".join(shards) for _, shards in blocks]
        assert client.put(blocks[:1])[0].status == Status.EXISTS

    def test_whole_and_shared_blocks_go_in_one_call(self, client: Client, config: NodeConfig) -> None:
        shards = self._shards(config, 2, 1)
        digests = [digest_of(config, number) for number in range(3)]
        replies = client.put([(digests[0], content_of(config, 0)), (digests[1], shards), (digests[2], shards[0])])
        assert [reply.status for reply in replies] == [Status.SEALED] * 3
        wanted = [content_of(config, 0), b"".join(shards), shards[0]]
        assert [reply.data for reply in client.read(digests)] == wanted

    def test_block_can_be_read_when_the_last_member_is_complete(self, transport: Transport, config: NodeConfig) -> None:
        first, second = self._shards(config, 2)
        builder = BatchBuilder(config)
        share: dict[str, Any] = {"members": 2, "length": len(first)}
        starts = [builder.add(Opcode.PUT_START, 1, digest=digest_of(config, 0), member=n, **share) for n in (0, 1)]
        for member, shard in ((1, second), (0, first)):
            step = config.max_payload_bytes
            for at in range(0, len(shard), step):
                data = shard[at : at + step]
                offset = member * len(first) + at
                handle = starts[member]
                builder.add(
                    Opcode.WRITE, 1, handle_from=handle, member=member, offset=offset, length=len(data), payload=data
                )
            builder.add(Opcode.READ, 1, digest=digest_of(config, 0))
            builder.add(Opcode.PUT_END, 1, handle_from=starts[member], member=member, crc=crc32c(shard), **share)
        read = builder.add(Opcode.READ, 1, digest=digest_of(config, 0))
        result = self._run(transport, builder)
        rest = [name for name in self._status(result) if name != "OK" or name == "SEALED"]
        assert rest == ["GRANTED", "GRANTED", "NOT_READY", "NOT_READY", "SEALED"]
        assert bytes(result.payload(read)) == first + second
        assert int(result.results["header"]["crc"][read]) == crc32c(first + second)

    def test_block_that_one_member_cannot_join_leaves_nothing(self, client: Client, config: NodeConfig) -> None:
        shards = self._shards(config, 2)
        self._begin(client, digest_of(config, 0), member=1, members=2, length=len(shards[0]))
        assert client.put([(digest_of(config, 0), shards)])[0].status == Status.BUSY
        assert client.lookup([digest_of(config, 0)])[0].status == Status.MISS
        assert self._settled(client, "FILL_ROWS_USED", 0)
        assert client.put([(digest_of(config, 0), shards)])[0].status == Status.SEALED

    def test_shards_that_make_no_block_are_refused(self, client: Client, config: NodeConfig) -> None:
        beat = config.beat_bytes
        for shards, message in (
            ([bytes(beat), bytes(2 * beat)], "must be of equal length"),
            ([bytes(beat)] * 9, "9 shards: must be 1 to 8"),
            ([], "0 shards"),
            ([bytes(config.block_bytes)] * 2, f"data of {2 * config.block_bytes} bytes"),
        ):
            with pytest.raises(ValueError, match=message):
                client.put([(digest_of(config, 0), shards)])


class SessionContract(_Suite):
    """Read after write, also while a session moves."""

    @pytest.fixture
    def session(self, client: Client) -> Iterator[Session]:
        with client.session() as session:
            yield session

    def _blocks(self, config: NodeConfig, *numbers: int) -> list[tuple[bytes, bytes]]:
        return [(digest_of(config, number), content_of(config, number)) for number in numbers]

    def test_fence_tells_when_the_blocks_are_sealed(self, session: Session, config: NodeConfig) -> None:
        assert session.fence() == 0
        assert [reply.status for reply in session.put(self._blocks(config, 0, 1, 2))] == [Status.SEALED] * 3
        assert session.fence() == session.fence(2) == session.sequence == session.committed == 3

    def test_fence_that_is_not_reached_ends_at_its_deadline(self, session: Session, config: NodeConfig) -> None:
        session.put(self._blocks(config, 0))
        with pytest.raises(DeadlineExpired, match=r"fence up to block 2, 1 are sealed: DEADLINE \(-901\)"):
            session.fence(2, deadline_cycles=2_000)
        with pytest.raises(DeadlineExpired):
            session.fence(2, deadline_cycles=0)

    def test_answer_is_of_a_time_after_the_number(self, session: Session, config: NodeConfig) -> None:
        session.put(self._blocks(config, 0))
        digests = [digest_of(config, 0)]
        assert session.read(digests, after=1)[0].data == content_of(config, 0)
        assert session.match(digests, after=1) == 1
        assert session.lookup(digests, after=2)[0].status == Status.NOT_READY
        assert session.read(digests, after=2, patience_cycles=500)[0].status == Status.DEADLINE
        assert session.read_runs(digests, 0, config.beat_bytes, 0, 1, after=2)[0].status == Status.NOT_READY
        with pytest.raises(NotReady):
            session.match(digests, after=2)

    def test_block_that_is_there_already_counts(self, client: Client, session: Session, config: NodeConfig) -> None:
        client.put(self._blocks(config, 0))
        assert [reply.status for reply in session.put(self._blocks(config, 0, 1))] == [Status.EXISTS, Status.SEALED]
        assert session.fence() == 2

    def test_gap_of_a_refused_block_is_filled_by_the_next(
        self, client: Client, session: Session, config: NodeConfig
    ) -> None:
        self._begin(client, digest_of(config, 1))
        statuses = [reply.status for reply in session.put(self._blocks(config, 0, 1, 2))]
        assert statuses == [Status.SEALED, Status.BUSY, Status.SEALED]
        assert (session.sequence, session.committed) == (3, 1)
        with pytest.raises(DeadlineExpired):
            session.fence(deadline_cycles=500)
        session.put(self._blocks(config, 3))
        assert session.fence() == session.sequence == 3

    def test_more_blocks_than_the_window_are_numbered_on(self, session: Session, config: NodeConfig) -> None:
        session.put(self._blocks(config, 0))
        replies = session.put(self._blocks(config, 0) * (WINDOW + 4))
        assert [reply.status for reply in replies] == [Status.EXISTS] * (WINDOW + 4)
        assert session.fence() == session.committed == WINDOW + 5

    def test_members_write_in_a_session(self, session: Session, config: NodeConfig) -> None:
        half = config.block_bytes // 2
        data = content_of(config, 0)
        (reply,) = session.put([(digest_of(config, 0), [data[:half], data[half:]])])
        assert reply.status == Status.SEALED
        assert session.read([digest_of(config, 0)], after=1)[0].data == data

    def test_own_bytes_are_read_before_the_block_is_sealed(self, transport: Transport, config: NodeConfig) -> None:
        data = content_of(config, 0)[: config.block_bytes // 2]
        builder = BatchBuilder(config)
        opened = builder.add(Opcode.SESSION_OPEN, 1)
        digest = digest_of(config, 0)
        start = builder.add(
            Opcode.PUT_START, 1, digest=digest, session_from=opened, sequence=1, length=config.block_bytes
        )
        landed = builder.add(Opcode.WRITE, 1, handle_from=start, length=len(data), payload=data)
        own = builder.add(Opcode.READ, 1, digest=digest, session_from=opened, length=len(data), after=landed)
        builder.add(Opcode.READ, 1, digest=digest, session_from=opened)
        builder.add(Opcode.SESSION_CLOSE, 1, session_from=opened)
        result = self._run(transport, builder)
        assert self._status(result)[2:] == ["OK", "OK", "NOT_READY", "OK"]
        assert bytes(result.payload(own)) == data

    def test_session_that_moves_takes_late_blocks_up_to_its_limit(
        self, client: Client, session: Session, config: NodeConfig
    ) -> None:
        session.put(self._blocks(config, 0))
        with session.migrate(client.ports[-1:], limit=2) as moved:
            assert (moved.number, moved.epoch, moved.sequence) == (session.number, session.epoch + 1, 2)
            assert moved.lookup([digest_of(config, 0)], after=2)[0].status == Status.NOT_READY
            statuses = [reply.status for reply in session.put(self._blocks(config, 1, 2))]
            assert statuses == [Status.SEALED, Status.STALE_EPOCH]
            assert moved.match([digest_of(config, 0), digest_of(config, 1)], after=2) == 2
            assert moved.put(self._blocks(config, 3))[0].status == Status.SEALED
            assert moved.fence() == 3
            with pytest.raises(StaleEpoch):
                session.fence()

    def test_session_can_be_taken_over_by_its_number(
        self, client: Client, session: Session, config: NodeConfig
    ) -> None:
        session.put(self._blocks(config, 0))
        other = Session(client, session.ports, number=session.number, epoch=session.epoch, sequence=session.sequence)
        assert other.fence() == 1
        assert other.put(self._blocks(config, 1))[0].status == Status.SEALED
        assert session.fence(2) == 2

    def test_closed_session_is_stale_and_closing_again_is_no_error(self, client: Client, config: NodeConfig) -> None:
        with client.session() as session:
            session.put(self._blocks(config, 0))
            other = Session(client, session.ports, number=session.number, epoch=session.epoch)
        session.close()
        for use in (session.fence, other.fence, lambda: session.read([digest_of(config, 0)])):
            with pytest.raises(StaleEpoch):
                use()
        other.close()
        assert client.get(digest_of(config, 0)) == content_of(config, 0)

    def test_unsealed_blocks_go_with_their_session(
        self, client: Client, transport: Transport, config: NodeConfig
    ) -> None:
        builder = BatchBuilder(config)
        opened = builder.add(Opcode.SESSION_OPEN, client.ports[0])
        builder.add(
            Opcode.PUT_START, client.ports[0], digest=digest_of(config, 0), model_id=1, length=config.beat_bytes,
            session_from=opened, sequence=1,
        )  # fmt: skip
        builder.add(Opcode.SESSION_CLOSE, client.ports[0], session_from=opened)
        assert self._status(self._run(transport, builder)) == ["OK", "GRANTED", "OK"]
        transport.wait(100)
        assert self._settled(client, "FILL_ROWS_USED", 0)
        assert client.put(self._blocks(config, 0))[0].status == Status.SEALED

    def test_private_blocks_are_found_by_their_session_only(self, client: Client, config: NodeConfig) -> None:
        digests = [digest_of(config, 0)]
        with client.session(private=True) as session, client.session(private=True) as other:
            assert session.put(self._blocks(config, 0))[0].status == Status.SEALED
            assert session.match(digests) == 1 and session.get(digests[0]) == content_of(config, 0)
            assert client.match(digests) == other.match(digests) == 0
            assert client.put([(digests[0], content_of(config, 1))])[0].status == Status.SEALED
            assert session.get(digests[0]) == content_of(config, 0)
            handles = self._handles(session, digests)
            assert session.read(handles)[0].data == content_of(config, 0)
            assert other.read(handles)[0].status == Status.STALE_HANDLE
        assert client.read(handles)[0].status == Status.STALE_HANDLE
        assert client.get(digests[0]) == content_of(config, 1)
        client.transport.wait(100)
        assert self._settled(client, "FREE_SLOTS", config.partitions[client.partition].slots - 1)

    def test_idle_session_ends(self, client: Client) -> None:
        with client.session(ttl=1) as session:
            session.fence()
            self._wait_ticks(client.transport, 2 * TTL_TICKS)
            assert self._settled(client, "SESSIONS_OPEN", 0)
            with pytest.raises(StaleEpoch):
                session.fence()

    def test_sessions_run_out(self, client: Client, config: NodeConfig) -> None:
        with ExitStack() as opened:
            for _ in range(config.sessions):
                opened.enter_context(client.session())
            with pytest.raises(QuotaExceeded):
                client.session().open()
        with client.session() as session:
            session.fence()


class LeaseContract(_Suite):
    """Blocks that are kept, and for how long."""

    def test_leased_block_stays_until_it_is_released(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 2)
        with client.lease(digests[:1]) as held:
            assert (len(held), held.replies[0].status) == (1, Status.HIT)
            assert [reply.status for reply in client.drop(digests)] == [Status.BUSY, Status.OK]
            assert held.read()[0].data == content_of(config, 0)
            held.release()
            assert client.drop(digests)[0].status == Status.OK
        held.release()
        assert self._settled(client, "LEASES_HELD", 0)

    def test_leased_block_is_not_evicted(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        slots = config.partitions[client.partition].slots
        with client.lease(digests) as held:
            client.put((digest_of(config, n), content_of(config, n)[: config.beat_bytes]) for n in range(1, 3 * slots))
            assert held.read()[0].data == content_of(config, 0)

    def test_match_locks_what_it_finds(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 2)
        with client.match([*digests, digest_of(config, 5)], lock=True) as held:
            assert len(held) == 2
            assert [reply.data for reply in held.read()] == [content_of(config, 0), content_of(config, 1)]
            assert client.drop(digests)[1].status == Status.BUSY
        assert [reply.status for reply in client.drop(digests)] == [Status.OK] * 2
        with client.match(digests, lock=True) as held:
            assert len(held) == 0 and held.handles == []

    def test_lease_ends_after_its_ticks(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        with client.lease(digests, ticks=1):
            self._wait_ticks(client.transport, 3)
            assert self._settled(client, "LEASES_HELD", 0)
            assert client.drop(digests)[0].status == Status.OK

    def test_missing_block_cannot_be_leased(self, client: Client, config: NodeConfig) -> None:
        with client.lease([digest_of(config, 0)]) as held:
            assert (len(held), held.replies[0].status) == (0, Status.MISS)

    def test_leases_run_out(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        with client.lease(digests * (config.leases + 1)) as held:
            assert len(held) == config.leases
            assert held.replies[-1].status == Status.QUOTA
            with pytest.raises(QuotaExceeded, match=r"QUOTA \(-1700\)"):
                client.match(digests, lock=True)
        assert self._settled(client, "LEASES_HELD", 0)
        with client.lease(digests) as held:
            assert len(held) == 1

    def test_release_all_ends_every_lease_of_the_ports(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        held = client.lease(digests * 3)
        client.release_all()
        assert self._settled(client, "LEASES_HELD", 0)
        assert client.drop(digests)[0].status == Status.OK
        held.release()

    def test_leases_of_a_session_end_with_it(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        with client.session() as session:
            session.lease(digests)
            assert client.drop(digests)[0].status == Status.BUSY
        assert self._settled(client, "LEASES_HELD", 0)
        assert client.drop(digests)[0].status == Status.OK

    def test_lease_of_before_a_reset_is_released_without_an_error(self, client: Client, config: NodeConfig) -> None:
        with client.lease(self._fill(client, 1)):
            client.transport.write_register(registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK)


class RegisterContract(_Suite):
    """The management plane (rtl/csr/node.rdl)."""

    def _counter(self, transport: Transport, partition: int, kind: Kind, status: Status) -> int:
        word = partition << registers.COUNTER_SELECT_PARTITION_SHIFT | kind << registers.COUNTER_SELECT_KIND_SHIFT
        transport.write_register(registers.COUNTER_SELECT_ADDRESS, word | status)
        assert transport.read_register(registers.COUNTER_SELECT_ADDRESS) == word | status
        high = transport.read_register(registers.COUNTER_HIGH_ADDRESS)
        return high << 32 | transport.read_register(registers.COUNTER_LOW_ADDRESS)

    def test_sizes_are_those_of_the_configuration(self, transport: Transport, config: NodeConfig) -> None:
        read = transport.read_register
        assert read(registers.ID_ADDRESS) == 0x4B564E44
        word = read(registers.CAPABILITIES_0_ADDRESS)
        assert [*word.to_bytes(4, "little")] == [config.ports, len(config.partitions), config.beat_bytes, config.ports]
        assert read(registers.CAPABILITIES_1_ADDRESS) == config.block_beats
        word = read(registers.CAPABILITIES_2_ADDRESS)
        assert word & 0xFFFFF == config.max_payload_bytes // config.beat_bytes
        assert (1 << (word >> 20 & 15), 1 << (word >> 24 & 15)) == (config.models, config.fill_rows)
        word = read(registers.CAPABILITIES_3_ADDRESS)
        assert (word & 0xFFF, word >> 12 & 0xFFF, word >> 24) == (
            config.sessions,
            config.leases,
            config.tick_cycles_log2,
        )
        assert read(registers.BOOT_EPOCH_ADDRESS) == transport.boot_epoch == 3

    def test_partition_is_that_of_the_configuration(self, client: Client, config: NodeConfig) -> None:
        read, part = client.transport.read_register, config.partitions[client.partition]
        for name, value in (
            ("PORTS", config.port_masks[client.partition]),
            ("SLOTS_LOG2", part.slots_log2),
            ("SLOT_BASE", config.slot_bases[client.partition]),
            ("LOW_WATERMARK_SLOTS", part.low_watermark_slots),
            ("HIGH_WATERMARK_SLOTS", part.high_watermark_slots),
            ("FILL_DEADLINE_TICKS", part.fill_deadline_ticks),
            ("LEASE_TICKS", part.lease_ticks),
            ("FREE_SLOTS", part.slots),
            ("OPTIONS", int(part.public)),
        ):
            assert read(self._of_partition(client, name)) == value, name

    def test_partition_that_is_not_there_reads_zero(self, transport: Transport) -> None:
        address = registers.PARTITION_SLOTS_LOG2_ADDRESS + 7 * registers.PARTITION_STRIDE_BYTES
        transport.write_register(address, 5)
        assert transport.read_register(address) == 0

    @pytest.mark.parametrize(
        "address", [0x8, 0x500, registers.PARTITION_PORTS_ADDRESS + 0xC, registers.SIZE_BYTES + 64]
    )
    def test_address_without_a_register_is_an_error(self, transport: Transport, address: int) -> None:
        with pytest.raises(RegisterError, match=f"{address:#06x}"):
            transport.read_register(address)
        with pytest.raises(RegisterError, match=f"{address:#06x}"):
            transport.write_register(address, 1)

    def test_register_that_can_only_be_read_ignores_writes(self, transport: Transport) -> None:
        transport.write_register(registers.BOOT_EPOCH_ADDRESS, 9)
        transport.write_register(registers.EVENT_DATA_ADDRESS, 9)
        assert transport.read_register(registers.BOOT_EPOCH_ADDRESS) == 3

    def test_occupancy_is_counted(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        self._begin(client, digest_of(config, 7))
        with client.session(), client.lease(digests):
            self._wait_ticks(client.transport, 2)
            for name, value in (
                ("FREE_SLOTS", config.partitions[client.partition].slots - 2),
                ("FILL_ROWS_USED", 1),
                ("LEASES_HELD", 1),
                ("SESSIONS_OPEN", 1),
            ):
                assert self._settled(client, name, value), name
            assert self._settled(client, "OLDEST_LEASE_TICKS", range(2, 1 << TIME_BITS))
        assert self._settled(client, "LEASES_HELD", 0)
        assert self._settled(client, "OLDEST_LEASE_TICKS", 0)

    def test_setting_is_in_effect_at_once(self, client: Client, config: NodeConfig) -> None:
        write, address = client.transport.write_register, self._of_partition(client, "RESERVE_SLOTS")
        slots = config.partitions[client.partition].slots
        write(address, slots)
        assert client.transport.read_register(address) == slots
        assert client.put([(digest_of(config, 0), content_of(config, 0))])[0].status == Status.QUOTA
        write(address, 0)
        self._fill(client, 1)

    def test_time_to_live_of_the_partition_is_for_blocks_that_name_none(
        self, client: Client, config: NodeConfig
    ) -> None:
        client.transport.write_register(self._of_partition(client, "BLOCK_TTL"), 1)
        self._fill(client, 1)
        self._wait_ticks(client.transport, 2 * TTL_TICKS)
        assert self._settled(client, "FREE_SLOTS", config.partitions[client.partition].slots)

    def test_operations_are_counted_by_partition_kind_and_status(self, client: Client, config: NodeConfig) -> None:
        for _ in range(3):
            client.lookup([digest_of(config, 0)])
        assert self._counter(client.transport, client.partition, Kind.LOOKUP, Status.MISS) == 3
        assert self._counter(client.transport, 1 - client.partition, Kind.LOOKUP, Status.MISS) == 0
        assert self._counter(client.transport, client.partition, Kind.LOOKUP, Status.HIT) == 0

    def test_model_is_retired_by_one_write(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        word = client.partition << registers.MODEL_RETIRE_PARTITION_SHIFT | client.model_id
        client.transport.write_register(registers.MODEL_RETIRE_ADDRESS, word)
        assert client.match(digests) == 0

    def test_damaged_block_is_told_and_then_a_miss(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        (handle,) = self._handles(client, digests)
        word = client.partition << registers.POISON_PARTITION_SHIFT | handle.slot
        client.transport.write_register(registers.POISON_ADDRESS, word)
        # The sweeper may have taken it before it was asked for.
        assert client.read(digests)[0].status in (Status.POISONED, Status.MISS)
        assert client.match(digests) == 0

    def test_port_that_is_down_loses_its_leases_and_its_unsealed_blocks(
        self, client: Client, config: NodeConfig
    ) -> None:
        digests = self._fill(client, 1)
        self._begin(client, digest_of(config, 7))
        held = client.lease(digests)
        port = client.ports[0]
        client.transport.port_down(port)
        assert client.transport.read_register(registers.PORT_DOWN_ADDRESS) == 1 << port
        assert self._settled(client, "LEASES_HELD", 0) and self._settled(client, "FILL_ROWS_USED", 0)
        client.transport.port_down(port, False)
        assert client.transport.read_register(registers.PORT_DOWN_ADDRESS) == 0
        held.release()
        assert client.get(digests[0]) == content_of(config, 0)
        assert client.lookup([digest_of(config, 7)])[0].status == Status.MISS

    def test_drained_node_says_so_and_works_again(self, client: Client, config: NodeConfig) -> None:
        transport = client.transport
        transport.write_register(registers.CONTROL_ADDRESS, registers.CONTROL_DRAIN_MASK)
        transport.wait(1_000)
        status = transport.read_register(registers.STATUS_ADDRESS)
        assert status & registers.STATUS_DRAINED_MASK and not status & registers.STATUS_READY_MASK
        transport.write_register(registers.CONTROL_ADDRESS, 0)
        assert transport.read_register(registers.STATUS_ADDRESS) == registers.STATUS_READY_MASK
        self._fill(client, 1)

    def test_reset_makes_handles_and_sessions_stale(self, client: Client, config: NodeConfig) -> None:
        transport = client.transport
        digests = self._fill(client, 1)
        handles = self._handles(client, digests)
        with client.session() as session:
            transport.write_register(registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK)
            assert transport.boot_epoch == transport.read_register(registers.BOOT_EPOCH_ADDRESS) != 3
            assert client.read(handles)[0].status == Status.STALE_HANDLE
            assert client.read(digests)[0].status == Status.MISS
            with pytest.raises(StaleEpoch):
                session.fence()
        assert self._fill(client, 1) == digests


class EventContract(_Suite):
    """What routers learn."""

    @pytest.fixture
    def reader(self, transport: Transport) -> EventReader:
        reader = EventReader(transport)
        self._check_cleared(reader, transport)
        return reader

    def _check_cleared(self, reader: EventReader, transport: Transport) -> None:
        """A node that was reset tells it first, when its tables are cleared."""
        transport.wait(2 * transport.config.slots + 1_000)
        (first,) = reader.poll()
        assert isinstance(first, AllBlocksCleared) and first.sequence == 0

    def test_stored_and_removed_blocks_are_told(self, client: Client, reader: EventReader, config: NodeConfig) -> None:
        data = content_of(config, 0)[: 3 * config.beat_bytes]
        client.put([(digest_of(config, 0), data)])
        client.drop([digest_of(config, 0)])
        stored, removed = reader.poll()
        assert isinstance(stored, BlockStored) and isinstance(removed, BlockRemoved)
        for number, event in ((1, stored), (2, removed)):
            assert (event.sequence, event.partition, event.model_id) == (number, client.partition, 1)
            assert (event.block_hashes, event.group_idx, event.private) == ((digest_of(config, 0),), 0, False)
        assert (stored.size_bytes, stored.medium, removed.reason) == (len(data), "KVNODE", Cause.DROPPED)
        assert reader.poll() == []

    def test_evicted_blocks_are_told(self, client: Client, reader: EventReader, config: NodeConfig) -> None:
        client.transport.write_register(self._of_partition(client, "LOW_WATERMARK_SLOTS"), 0)
        self._fill(client, 3)
        slots = config.partitions[client.partition].slots
        client.transport.write_register(self._of_partition(client, "HIGH_WATERMARK_SLOTS"), slots)
        client.transport.write_register(self._of_partition(client, "LOW_WATERMARK_SLOTS"), slots)
        assert self._settled(client, "FREE_SLOTS", slots)
        events = reader.poll()
        assert [type(event) for event in events] == [BlockStored] * 3 + [BlockRemoved] * 3
        assert {event.reason for event in events if isinstance(event, BlockRemoved)} == {Cause.CAPACITY}

    def test_private_blocks_are_marked(self, client: Client, reader: EventReader, config: NodeConfig) -> None:
        with client.session(private=True) as session:
            session.put([(digest_of(config, 0), content_of(config, 0))])
        assert self._settled(client, "FREE_SLOTS", config.partitions[client.partition].slots)
        stored, removed = reader.poll()
        assert isinstance(stored, BlockStored) and stored.private
        assert isinstance(removed, BlockRemoved) and removed.reason == Cause.SESSION

    def test_retired_model_is_told_before_its_blocks_leave(
        self, client: Client, reader: EventReader, config: NodeConfig
    ) -> None:
        self._fill(client, 1)
        client.retire_model()
        assert self._settled(client, "FREE_SLOTS", config.partitions[client.partition].slots)
        _, retired, removed = reader.poll()
        assert isinstance(retired, ModelRetired)
        assert (retired.partition, retired.model_id, retired.model_epoch) == (client.partition, 1, 1)
        assert isinstance(removed, BlockRemoved) and removed.reason == Cause.MODEL

    def test_moved_session_is_told(self, client: Client, reader: EventReader) -> None:
        with client.session() as session, session.migrate(client.ports[-1:]):
            (moved,) = reader.poll()
        assert isinstance(moved, SessionMoved)
        assert (moved.session, moved.session_epoch, moved.ports) == (session.number, 1, client.ports[-1:])

    def test_port_that_went_down_is_told(self, client: Client, reader: EventReader) -> None:
        client.transport.port_down(client.ports[0])
        client.transport.port_down(client.ports[0], False)
        client.transport.wait(1_000)
        (down,) = reader.poll()
        assert isinstance(down, PortDown) and down.ports == client.ports[:1]

    def test_damaged_block_is_told(self, client: Client, reader: EventReader, config: NodeConfig) -> None:
        digests = self._fill(client, 1)
        (handle,) = self._handles(client, digests)
        word = client.partition << registers.POISON_PARTITION_SHIFT | handle.slot
        client.transport.write_register(registers.POISON_ADDRESS, word)
        client.read(digests)
        _, poisoned, removed = reader.poll()
        assert isinstance(poisoned, BlockPoisoned) and poisoned.block_hashes == (digests[0],)
        assert isinstance(removed, BlockRemoved) and removed.reason == Cause.POISONED

    def test_reset_clears_everything(self, client: Client, reader: EventReader, config: NodeConfig) -> None:
        self._fill(client, 2)
        client.transport.write_register(registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK)
        self._check_cleared(reader, client.transport)

    def test_events_beyond_the_ring_are_lost_and_that_is_told(
        self, client: Client, reader: EventReader, config: NodeConfig
    ) -> None:
        many = range(300)
        client.put((digest_of(config, n), content_of(config, n)[: config.beat_bytes]) for n in many)
        level = client.transport.read_register(registers.EVENT_LEVEL_ADDRESS)
        *told, lost = reader.poll()
        assert len(told) == level < len(many)
        assert [event.sequence for event in told] == list(range(1, level + 1))
        assert lost == Lost(level + 1, None)
        digests = [digest_of(config, n) for n in many]
        there = [digest for digest, reply in zip(digests, client.lookup(digests)) if reply.ok]
        client.drop(there[-1:])
        *others, removed = reader.poll()
        assert isinstance(removed, BlockRemoved) and removed.sequence >= len(many)
        assert not [event for event in others if isinstance(event, Lost)]

    def test_registers_show_the_same_events(self, client: Client, config: NodeConfig) -> None:
        digests = self._fill(client, 2)
        events = drain(client.transport)
        assert [event.sequence for event in events] == [0, 1, 2]
        assert [event.fields["digest"].to_bytes(32, "little") for event in events[1:]] == digests
        assert client.transport.events() == []
        client.transport.write_register(registers.EVENT_POP_ADDRESS, 1)
        client.drop(digests[:1])
        (event,) = client.transport.events()
        assert event.sequence == 3 and not event.overflow


#: Messages that are wrong in one way: what is changed in a good one. `payload` is the number of payload bytes.
MALFORMED: dict[str, tuple[Opcode, Change]] = {
    "unknown opcode": (Opcode.PING, lambda c: {"opcode": 200}),
    "other version": (Opcode.LOOKUP, lambda c: {"version": VERSION + 1}),
    "unregistered model": (Opcode.LOOKUP, lambda c: {"model_id": c.models}),
    "class out of range": (Opcode.PUT_START, lambda c: {"klass": 4}),
    "unknown flag": (Opcode.READ, lambda c: {"flags": 8}),
    "lease flag on an opcode that grants none": (Opcode.READ, lambda c: {"flags": int(Flag.LEASE)}),
    "private key without a session": (Opcode.LOOKUP, lambda c: {"flags": int(Flag.PRIVATE)}),
    "private key beside a handle": (Opcode.READ, lambda c: {"flags": 5, "session": NUMBERED}),
    "handle flag on an opcode that has no handle": (Opcode.LOOKUP, lambda c: {"flags": int(Flag.BY_HANDLE)}),
    **{
        f"{name} not zero": (Opcode.PING, lambda c, name=name: {name: 1})  # type: ignore[misc]
        for name in ("member", "members", "ttl", "deadline", "session_epoch", "session", "sequence")
    },
    "session that is no number of one": (Opcode.LOOKUP, lambda c: {"session": 1}),
    "number without a session": (Opcode.LOOKUP, lambda c: {"sequence": 1}),
    "fence without a session": (Opcode.SESSION_FENCE, lambda c: {"session": 0}),
    "member beyond the members": (Opcode.PUT_START, lambda c: {"member": 2, "members": 2, "length": c.beat_bytes}),
    "more members than there can be": (Opcode.PUT_START, lambda c: {"members": 9, "length": c.beat_bytes}),
    "shares that do not fit a block": (Opcode.PUT_START, lambda c: {"members": 2}),
    "end of a share without its length": (Opcode.PUT_END, lambda c: {"members": 2}),
    "stride of a single run": (Opcode.READ, lambda c: {"flags": 1, "digest": 3 << 64 | c.beat_bytes << 128}),
    "runs that do not fit a block": (
        Opcode.READ,
        lambda c: {"flags": 1, "length": c.beat_bytes, "digest": 3 << 64 | c.block_bytes << 128 | 2 << 160},
    ),
    "session over ports of another partition": (
        Opcode.SESSION_OPEN,
        lambda c: {"digest": c.port_masks[1 - c.partition_of_port[1]]},
    ),
    "payload where there is none": (Opcode.LOOKUP, lambda c: {"payload": c.max_payload_bytes}),
    "no payload where there is one": (Opcode.WRITE, lambda c: {"payload": 0}),
    "offset not of whole beats": (Opcode.READ, lambda c: {"offset": 1}),
    "offset beyond a block": (Opcode.READ, lambda c: {"offset": c.block_bytes}),
    "length not of whole beats": (Opcode.READ, lambda c: {"length": c.beat_bytes + 1}),
    "length beyond a block": (Opcode.PUT_START, lambda c: {"length": c.block_bytes + c.beat_bytes}),
    "put of nothing": (Opcode.PUT_START, lambda c: {"length": 0}),
    "put with an offset": (Opcode.PUT_START, lambda c: {"offset": c.beat_bytes}),
    "match of part of a digest": (Opcode.MATCH, lambda c: {"length": 33}),
    "match of too many digests": (Opcode.MATCH, lambda c: {"length": c.max_payload_bytes + 32}),
    "match with a digest in the header": (Opcode.MATCH, lambda c: {"digest": 1}),
    "write longer than allowed": (Opcode.WRITE, lambda c: {"length": c.max_payload_bytes + c.beat_bytes}),
    "end with a length": (Opcode.PUT_END, lambda c: {"length": c.beat_bytes}),
    "partition that does not exist": (Opcode.LOOKUP, lambda c: {"partition": 255}),
    "partition of another port": (Opcode.LOOKUP, lambda c: {"partition": 1 - c.partition_of_port[1]}),
    "handle of another boot": (Opcode.PUT_END, lambda c: {"digest": 4 << 64}),
    "handle of a slot that does not exist": (Opcode.PUT_END, lambda c: {"digest": 3 << 64 | 0xFFFF}),
    "handle of a generation that does not exist": (Opcode.PUT_END, lambda c: {"digest": 3 << 64 | 0xFFFFFFFF << 32}),
    "handle with more bits than it has": (Opcode.PUT_END, lambda c: {"digest": 3 << 64 | 1 << 230}),
}


class MessageContract(_Suite):
    """Anything malformed answers what `spec.requests` says and changes nothing; no message hangs a port."""

    FUZZ_MESSAGES = 2_000

    def _good(self, config: NodeConfig, opcode: Opcode, port: int) -> dict[str, int]:
        fields = dict.fromkeys(REQUEST.fields, 0)
        fields |= {"opcode": opcode, "version": VERSION, "partition": config.partition_of_port[port], "payload": 0}
        if opcode in OF_SESSION:
            fields["session"] = NUMBERED
        if opcode in BY_HANDLE_ONLY:
            fields["digest"] = int.from_bytes(HANDLE.pack(boot_epoch=3), "little")
        if opcode in WITH_PAYLOAD:
            fields["length"] = fields["payload"] = config.max_payload_bytes
        if opcode == Opcode.PUT_START:
            fields["length"] = config.block_bytes
        return fields

    def _batch(self, messages: list[tuple[int, dict[str, int]]]) -> tuple[Batch, bytes]:
        batch = np.zeros(len(messages), BATCH_DTYPE)
        batch["after"] = batch["handle_from"] = batch["session_from"] = -1
        for row, (port, fields) in zip(batch, messages):
            row["port"], row["payload_bytes"] = port, fields["payload"]
            header = REQUEST.pack(**{name: value for name, value in fields.items() if name != "payload"})
            row["header"] = np.frombuffer(header, batch["header"].dtype)[0]
        return batch, bytes(int(batch["payload_bytes"].max(initial=0)))

    def _seen(self, transport: Transport) -> list[tuple[int, int, int]]:
        """What lookups of some keys say on every port."""
        config = transport.config
        builder = BatchBuilder(config)
        for port in range(config.ports):
            for number in range(8):
                builder.add(Opcode.LOOKUP, port, digest=digest_of(config, number))
        batch, payload = builder.build()
        header = transport.run(batch, payload).results["header"]
        return [tuple(row) for row in header[["status", "slot", "generation"]].tolist()]

    @pytest.mark.parametrize("name", MALFORMED)
    def test_malformed_message_answers_its_status_and_changes_nothing(
        self, transport: Transport, config: NodeConfig, name: str
    ) -> None:
        builder = BatchBuilder(config)
        builder.puts(1, [(digest_of(config, 0), content_of(config, 0))])
        transport.run(*builder.build())
        before = self._seen(transport)
        opcode, change = MALFORMED[name]
        fields = self._good(config, opcode, 1) | change(config)
        payload_bytes = fields["payload"]
        header = {key: value for key, value in fields.items() if key != "payload"}
        expected = check_request(config, 1, 3, header, payload_bytes)
        assert expected in (Status.BAD_REQUEST, Status.DENIED, Status.STALE_HANDLE)
        batch, payload = self._batch([(1, fields)] * 3)
        result = transport.run(batch, payload)
        result.require_answers(batch)
        assert result.results["header"]["status"].tolist() == [expected] * 3
        assert self._seen(transport) == before

    @pytest.mark.parametrize("more", [-1, 1])
    def test_match_with_a_payload_of_another_length_is_a_bad_request(
        self, transport: Transport, config: NodeConfig, more: int
    ) -> None:
        fields = self._good(config, Opcode.MATCH, 1)
        one = max(config.beat_bytes, 32)
        fields |= {"length": 2 * one, "payload": 2 * one + more * one}
        batch, payload = self._batch([(1, fields)])
        assert transport.run(batch, payload).results["header"]["status"].tolist() == [Status.BAD_REQUEST]

    def test_random_messages_are_all_answered(self, transport: Transport, config: NodeConfig) -> None:
        rng = random.Random(1)
        messages = [self._random(config, rng) for _ in range(self.FUZZ_MESSAGES)]
        batch, payload = self._batch(messages)
        result = transport.run(batch, payload)
        result.require_answers(batch)
        for (port, fields), status in zip(messages, result.results["header"]["status"].tolist()):
            header = {key: value for key, value in fields.items() if key != "payload"}
            expected = check_request(config, port, 3, header, fields["payload"])
            assert expected == Status.OK or status == expected

    def _random(self, config: NodeConfig, rng: random.Random) -> tuple[int, dict[str, int]]:
        """A good message with up to three fields changed to values that are often near a limit."""
        port = rng.randrange(config.ports)
        opcode = rng.choice(list(Opcode))
        fields = self._good(config, opcode, port)
        if opcode in (Opcode.LOOKUP, Opcode.PUT_START, Opcode.READ, Opcode.DROP, Opcode.LEASE):
            fields["digest"] = int.from_bytes(digest_of(config, rng.randrange(6)), "little")
        beat = config.beat_bytes
        near = (0, 1, beat, 2 * beat, 32, 64, config.max_payload_bytes, config.block_bytes, config.block_bytes + beat)
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            name = rng.choice(["payload", *REQUEST.fields])
            if name == "payload":
                fields[name] = rng.choice((0, beat, config.max_payload_bytes, config.max_payload_bytes + 2 * beat))
            elif name == "digest":
                fields[name] = rng.choice((rng.getrandbits(256), 3 << 64 | rng.randrange(8) | rng.randrange(4) << 32))
            else:
                limit = (1 << REQUEST.fields[name].size_bits) - 1
                fields[name] = min(limit, rng.choice((*near, rng.randint(0, limit), rng.randrange(4))))
        return port, fields
