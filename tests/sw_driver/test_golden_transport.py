"""The golden transport under the contract, and its short cut against the node's own way."""

import numpy as np
import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.spec.config import preset
from kvnode.sw_driver import contract
from kvnode.sw_driver.errors import TransportError
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


class TestMessages(_Golden, contract.MessageContract):
    pass


class TestMessagesOnWide(_Golden, contract.MessageContract):
    PRESET = "wide"


@pytest.mark.parametrize("name", ["tiny", "sim"])
def test_direct_way_answers_as_the_node_does(name, monkeypatch):
    config = preset(name)
    suite = contract.MessageContract()
    rng = contract.random.Random(2)
    batch, payload = suite._batch([suite._random(config, rng) for _ in range(1_500)])
    quick = golden.GoldenTransport(config, 3).run(batch, payload)
    assert golden._plain(config, 3, batch).sum() > 300
    monkeypatch.setattr(golden, "_plain", lambda config, boot_epoch, batch: np.zeros(len(batch), bool))
    careful = golden.GoldenTransport(config, 3).run(batch, payload)
    assert quick.results.tobytes() == careful.results.tobytes()
    assert bytes(quick.data) == bytes(careful.data)


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


def test_unknown_transport_is_named():
    with pytest.raises(TransportError, match="transport 'fpga': there are rtl, golden"):
        open_transport("fpga", preset("tiny"))
