"""What every transport, and the client on it, must do: test classes that each implementation is put through.

Subclass in a test module and give `make`, or a `transport` fixture; pytest finds the inherited tests.

Used by: tests/sw_driver (golden), verif.test_transports (RTL).
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, VERSION
from kvnode.models.spec.requests import WITH_PAYLOAD, check_request

from .batch import BatchBuilder
from .client import Client
from .errors import KvError
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


class BatchContract(_Suite):
    """Order, handles and skipping (spec.batch)."""

    def _run(self, transport: Transport, builder: BatchBuilder, **options: Any) -> RunResult:
        batch, payload = builder.build()
        return transport.run(batch, payload, **options)

    def _status(self, result: RunResult) -> list[str]:
        rows = zip(result.results["done"].tolist(), result.results["header"]["status"].tolist())
        return ["SKIPPED" if done == SKIPPED else Status(status).name for done, status in rows]

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
        [("after", 0, "not an earlier request"), ("handle_from", -2, "not an earlier request"), ("port", 64, "port 64"),
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


class ClientContract(_Suite):
    """What a program sees."""

    @pytest.fixture
    def client(self, transport: Transport) -> Client:
        return Client(transport, partition=transport.config.partition_of_port[1], model_id=1)

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
        with pytest.raises(ValueError, match="model_id = 99"):
            Client(client.transport, model_id=99)
        with pytest.raises(ValueError, match="does not belong to partition"):
            Client(client.transport, partition=0, ports=[config.partitions[1].ports[0]])


#: Messages that are wrong in one way: what is changed in a good one. `payload` is the number of payload bytes.
MALFORMED: dict[str, tuple[Opcode, Change]] = {
    "unknown opcode": (Opcode.PING, lambda c: {"opcode": 200}),
    "opcode of a later version": (Opcode.PING, lambda c: {"opcode": Opcode.LEASE}),
    "other version": (Opcode.LOOKUP, lambda c: {"version": VERSION + 1}),
    "unregistered model": (Opcode.LOOKUP, lambda c: {"model_id": c.models}),
    "class out of range": (Opcode.PUT_START, lambda c: {"klass": 4}),
    "unknown flag": (Opcode.READ, lambda c: {"flags": 2}),
    "handle flag on an opcode that has no handle": (Opcode.LOOKUP, lambda c: {"flags": int(Flag.BY_HANDLE)}),
    **{
        f"{name} not zero": (Opcode.READ, lambda c, name=name: {name: 1})  # type: ignore[misc]
        for name in ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")
    },
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
    "handle with more bits than it has": (Opcode.PUT_END, lambda c: {"digest": 3 << 64 | 1 << 200}),
}


class MessageContract(_Suite):
    """Anything malformed answers what `spec.requests` says and changes nothing; no message hangs a port."""

    FUZZ_MESSAGES = 2_000

    def _good(self, config: NodeConfig, opcode: Opcode, port: int) -> dict[str, int]:
        fields = dict.fromkeys(REQUEST.fields, 0)
        fields |= {"opcode": opcode, "version": VERSION, "partition": config.partition_of_port[port], "payload": 0}
        if opcode in (Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE):
            fields["digest"] = int.from_bytes(HANDLE.pack(boot_epoch=3), "little")
        if opcode in WITH_PAYLOAD:
            fields["length"] = fields["payload"] = config.max_payload_bytes
        if opcode == Opcode.PUT_START:
            fields["length"] = config.block_bytes
        return fields

    def _batch(self, messages: list[tuple[int, dict[str, int]]]) -> tuple[Batch, bytes]:
        batch = np.zeros(len(messages), BATCH_DTYPE)
        batch["after"] = batch["handle_from"] = -1
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
        opcode = rng.choice([op for op in Opcode if op <= Opcode.DROP])
        fields = self._good(config, opcode, port)
        if opcode in (Opcode.LOOKUP, Opcode.PUT_START, Opcode.READ, Opcode.DROP):
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
