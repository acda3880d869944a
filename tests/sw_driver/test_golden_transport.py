"""The golden transport under the contract, and what it counts."""

import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.spec import node_registers
from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode
from kvnode.sw_driver import contract
from kvnode.sw_driver.errors import TransportError, Unanswered
from kvnode.sw_driver.transports import golden, open_transport


class _Golden:
    def make(self, config, boot_epoch=0):
        return golden.GoldenTransport(config, boot_epoch)


class TestBatches(_Golden, contract.BatchContract):
    pass


class TestBatchesOnSim(_Golden, contract.BatchContract):
    PRESET = "sim"


class TestClient(_Golden, contract.ClientContract):
    pass


class TestClientOnWide(_Golden, contract.ClientContract):
    PRESET = "wide"


class TestMembers(_Golden, contract.MemberContract):
    pass


class TestMembersOnWide(_Golden, contract.MemberContract):
    PRESET = "wide"


class TestSessions(_Golden, contract.SessionContract):
    pass


class TestSessionsOnSim(_Golden, contract.SessionContract):
    PRESET = "sim"


class TestLeases(_Golden, contract.LeaseContract):
    pass


class TestLeasesOnWide(_Golden, contract.LeaseContract):
    PRESET = "wide"


class TestRegisters(_Golden, contract.RegisterContract):
    pass


class TestRegistersOnSim(_Golden, contract.RegisterContract):
    PRESET = "sim"


class TestEvents(_Golden, contract.EventContract):
    pass


class TestEventsOnSim(_Golden, contract.EventContract):
    PRESET = "sim"


class TestMessages(_Golden, contract.MessageContract):
    pass


class TestMessagesOnWide(_Golden, contract.MessageContract):
    PRESET = "wide"


def test_answers_are_those_of_a_node_of_its_own():
    config = preset("tiny")
    suite = contract.MessageContract()
    rng = contract.random.Random(3)
    batch, payload = suite._batch([suite._random(config, rng) for _ in range(300)])
    result = golden.GoldenTransport(config, 3).run(batch, payload)
    node = GoldenNode(config, 3)
    for row, ours in zip(batch, result.results):
        answer = node.request(int(row["port"]), row["header"].tobytes(), bytes(int(row["payload_bytes"])))
        assert {name: int(ours["header"][name]) for name in answer.fields} == answer.fields
        assert int(ours["data_bytes"]) == len(answer.data)


def test_statistics_count_what_was_run():
    with open_transport("golden", preset("sim")) as transport:
        builder = contract.BatchBuilder(transport.config)
        builder.puts(0, [(bytes(31) + b"a", bytes(4096))])
        transport.run(*builder.build())
        statistics = transport.statistics()
    assert statistics["operations"] == {"PUT_START": 1, "WRITE": 1, "LAND": 1, "PUT_END": 1}
    assert statistics["occupancy"]["SEALED"] == 1


def test_operations_of_the_sweeper_are_counted_with_those_of_the_messages():
    config = preset("tiny")
    with open_transport("golden", config) as transport:
        builder = contract.BatchBuilder(config)
        port = config.partitions[0].ports[0]
        # One payload each: 4 operations; 8 slots, of which 2 are kept free.
        builder.puts(port, [(contract.digest_of(config, n), bytes(64)) for n in range(20)], rows=1)
        result = transport.run(*builder.build())
        operations = transport.statistics()["operations"]
    assert result.operation_count == sum(operations.values())
    assert operations["REAP"] >= 12 and operations["VISIT"] >= operations["REAP"]


def test_port_that_is_down_answers_nothing_and_what_waits_for_it_neither():
    config = preset("sim")
    transport = golden.GoldenTransport(config)
    transport.port_down(0)
    builder = contract.BatchBuilder(config)
    silent = builder.add(Opcode.PING, 0)
    builder.add(Opcode.PING, 1)
    builder.add(Opcode.PING, 2, after=silent)
    builder.add(Opcode.PING, 2)
    builder.add(Opcode.PING, 3)
    batch, payload = builder.build()
    result = transport.run(batch, payload)
    assert result.results["done"].tolist() == [0, 1, 0, 0, 1]
    with pytest.raises(Unanswered, match="request 0"):
        result.require_answers(batch)
    transport.port_down(0, False)
    transport.run(batch, payload).require_answers(batch)


def test_drained_node_answers_nothing():
    config = preset("tiny")
    transport = golden.GoldenTransport(config)
    transport.write_register(node_registers.CONTROL_ADDRESS, 1)
    builder = contract.BatchBuilder(config)
    builder.add(Opcode.PING, 1)
    assert transport.run(*builder.build()).results["done"].tolist() == [0]


def test_time_that_is_waited_is_the_time_that_passes():
    transport = golden.GoldenTransport(preset("sim"))
    before = transport.node.tick
    transport.wait(5 << 8)
    assert transport.node.tick == before + 5
    with pytest.raises(ValueError, match="cycles = -1"):
        transport.wait(-1)


@pytest.mark.parametrize("port", [-1, 4])
def test_port_that_does_not_exist_is_named(port):
    with pytest.raises(ValueError, match=f"port {port} of 4"):
        golden.GoldenTransport(preset("sim")).port_down(port)


def test_unknown_transport_is_named():
    with pytest.raises(TransportError, match="transport 'fpga': there are rtl, golden"):
        open_transport("fpga", preset("tiny"))
