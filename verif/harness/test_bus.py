"""The register bus: order, cycles, response codes. The stand-in takes each channel in one of four cycles."""

import pytest

from .bench import LIMIT_CYCLES, batch_of
from .contract import Bus, Done
from .harness import HarnessError, HarnessStall, Manner, RunError
from .stand_in import Register

NOWHERE = 0x40


def test_registers_are_written_in_their_cycle_and_in_order(tiny):
    early, late = ({"earliest_cycle": cycle} for cycle in (0, 100))
    run = tiny.run(batch_of(early, late), max_cycles=LIMIT_CYCLES, registers=[(50, 0, 7), (51, 0, 9), (130, 0, 1)])
    assert list(run.results["header"]["slot"]) == [0, 9]
    # Addresses are taken in cycles 4n + 3, data in cycles 4n + 1, and two cycles after both there is the answer.
    assert list(run.registers["accepted_cycle"]) == [53, 59, 133]
    assert list(run.registers["answered_cycle"]) == [55, 61, 135]
    assert run.cycles == 136


def test_reads_and_writes_are_answered_in_order(tiny):
    accesses = [(0, 0), (0, 0, 7), (20, 0), (0, NOWHERE), (0, NOWHERE, 5), (0, 0, 0xFFFFFFFF), (0, 0)]
    run = tiny.run(batch_of({"earliest_cycle": 80}), max_cycles=LIMIT_CYCLES, registers=accesses)
    reads = [index for index, access in enumerate(accesses) if len(access) == 2]
    assert list(run.registers["data"][reads]) == [0, 7, 0, 0xFFFFFFFF]
    assert list(run.registers["address"]) == [access[1] for access in accesses]
    assert list(run.registers["response"]) == [Bus.SLVERR if at == NOWHERE else Bus.OKAY for _, at, *_ in accesses]
    # A read is taken in cycles 4n + 2 and answered in the next one, the access after it is offered in the one after.
    assert list(run.registers["accepted_cycle"][:3]) == [2, 7, 22]
    assert list(run.registers["answered_cycle"][:3]) == [3, 9, 23]
    assert run.results["done"] == Done.ANSWERED and run.results["header"]["slot"] == 0xFFFFFFFF


def test_one_register_is_written_and_read(tiny):
    before = tiny.cycle
    assert before <= tiny.write_register(Register.BIAS, 3) < before + 4
    assert tiny.read_register(Register.BIAS) == 3
    assert tiny.run(batch_of({}), max_cycles=LIMIT_CYCLES).results[0]["header"]["slot"] == 3


def test_error_response_is_raised_and_the_node_goes_on(tiny):
    with pytest.raises(HarnessError, match="the write of register 0x40 was answered SLVERR"):
        tiny.write_register(NOWHERE, 0)
    with pytest.raises(HarnessError, match="the read of register 0x40 was answered SLVERR"):
        tiny.read_register(NOWHERE)
    assert tiny.read_register(Register.DOWN) == 0


def test_second_answer_is_refused(tiny):
    tiny.write_register(Register.TWICE, 0)
    with pytest.raises(RunError, match="cycle 6: the register bus answered an access that was not made"):
        tiny.idle(1)
    tiny.reset()
    assert tiny.read_register(Register.BIAS) == 0


@pytest.mark.parametrize(("access", "name"), [((60, 0x12, 0), "write"), ((60, 0x12), "read")])
def test_stall_of_an_access_is_named(tiny, access, name):
    with pytest.raises(HarnessStall, match=f"the {name} of register 0x12 was not answered; 0 of 0") as caught:
        tiny.run(batch_of(), max_cycles=50, registers=[(0, 0), access])
    assert len(caught.value.result.registers) == 1


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ((0, 1 << 16), r"registers\[1\]: address = 0x10000 does not fit in 16 bits"),
        ((0, 0, 1 << 32), r"registers\[1\]: data = 0x100000000 does not fit in 32 bits"),
        ((0, 0, -1), r"registers\[1\]: data = -0x1 does not fit in 32 bits"),
    ],
)
def test_senseless_access_is_refused(tiny, access, message):
    with pytest.raises(ValueError, match=message):
        tiny.run(batch_of(), max_cycles=LIMIT_CYCLES, registers=[(0, 0), access])


@pytest.mark.parametrize(("late", "accepted"), [(0, 3), (5, 5), (6, 9), (-4, 7), (-6, 7)])
def test_address_and_data_come_as_far_apart_as_the_access_says(tiny, late, accepted):
    run = tiny.run(batch_of(), max_cycles=LIMIT_CYCLES, registers=[(0, Register.BIAS, 7, Manner(late=late))])
    assert run.registers["accepted_cycle"] == accepted and run.registers["answered_cycle"] == accepted + 2
    assert tiny.read_register(Register.BIAS) == 7


def test_answer_that_is_not_taken_stands_still(tiny):
    accesses = [(0, Register.BIAS, 9), (20, Register.BIAS, None, Manner(hold=4)), (20, Register.BIAS)]
    run = tiny.run(batch_of(), max_cycles=LIMIT_CYCLES, registers=accesses)
    assert list(run.registers["data"]) == [9, 9, 9]
    assert list(run.registers["answered_cycle"][1:]) == [27, 31]


def test_only_four_bytes_can_be_written(tiny):
    with pytest.raises(ValueError, match=r"registers\[0\]: strobe = 0x10 does not fit in 4 bits"):
        tiny.run(batch_of(), max_cycles=LIMIT_CYCLES, registers=[(0, 0, 0, Manner(strobe=16))])
