"""The RTL transport under the contract of every transport, in lockstep."""

import pytest

from kvnode.models.spec.enums import Opcode
from kvnode.sw_driver import contract
from kvnode.sw_driver.batch import BatchBuilder
from kvnode.sw_driver.errors import TransportError
from kvnode.sw_driver.transports.rtl import RtlTransport


@pytest.fixture(scope="module")
def nodes():
    """One node for each configuration."""
    opened: dict[str, RtlTransport] = {}
    yield opened
    for transport in opened.values():
        transport.close()


class _Rtl:
    @pytest.fixture
    def transport(self, config, nodes):
        if config.name not in nodes:
            nodes[config.name] = RtlTransport(config)
        transport = nodes[config.name]
        transport.reset(boot_epoch=3)
        yield transport
        assert transport.lockstep.operations > 0 or not transport.statistics()["requests"]


class TestBatches(_Rtl, contract.BatchContract):
    pass


class TestClient(_Rtl, contract.ClientContract):
    pass


class TestMessages(_Rtl, contract.MessageContract):
    pass


class TestMembers(_Rtl, contract.MemberContract):
    pass


class TestSessions(_Rtl, contract.SessionContract):
    pass


class TestLeases(_Rtl, contract.LeaseContract):
    pass


class TestRegisters(_Rtl, contract.RegisterContract):
    pass


class TestEvents(_Rtl, contract.EventContract):
    pass


@pytest.mark.long
class TestBatchesOnSim(_Rtl, contract.BatchContract):
    PRESET = "sim"


@pytest.mark.long
class TestClientOnSim(_Rtl, contract.ClientContract):
    PRESET = "sim"


@pytest.mark.long
class TestMessagesOnSim(_Rtl, contract.MessageContract):
    PRESET = "sim"


class TestRtlAlone(_Rtl, contract._Suite):
    """What only a transport with a clock does."""

    @pytest.fixture
    def pings(self, config):
        builder = BatchBuilder(config)
        for number in range(40):
            builder.add(Opcode.PING, number % config.ports)
        return builder.build()

    def test_run_that_is_cut_off_says_what_is_missing_and_only_a_reset_helps(self, transport, pings):
        batch, _ = pings
        result = transport.run(*pings, max_cycles=30)
        assert 0 < (result.results["done"] == 0).sum() < 40
        with pytest.raises(TransportError, match="did not answer an earlier run; reset it"):
            transport.run(*pings)
        transport.reset()
        transport.run(*pings).require_answers(batch)

    def test_same_patterns_give_the_same_cycles_and_others_do_not(self, transport, pings):
        cycles = []
        for seed in (1, 1, 2):
            transport.reset()
            result = transport.run(*pings, idle=0.3, backpressure=0.3, seed=seed)
            cycles.append(result.results["last_cycle"].tolist())
        assert cycles[0] == cycles[1] != cycles[2]

    def test_statistics_count_from_reset(self, transport, pings, config):
        transport.run(*pings)
        statistics = transport.statistics()
        assert statistics["requests"] == 40 and statistics["lockstep_operations"] >= 40
        assert statistics["request_beats"] == [20 * config.request_beats] * 2
        assert statistics["response_beats"] == [20 * config.response_beats] * 2
        transport.reset()
        assert transport.statistics()["requests"] == transport.statistics()["cycles"] == 0
