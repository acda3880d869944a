"""Ports that go down: what was sent and is not answered is lost, and nothing else."""

import pytest

from kvnode.models.spec.enums import Opcode, Status

from .bench import BOOT_EPOCH, CONFIGS, LIMIT_CYCLES, batch_of, open_harness, read_bytes
from .contract import Done
from .harness import HarnessStall
from .stand_in import Fault, Register

#: From the cycle in which the stand-in takes a write of the register to the first one in which the pin shows it.
PIN_CYCLES = 2


def down_and_up(first: int, last: int) -> list:
    """Register accesses that take port 0 down in or soon after cycle `first`, and up again."""
    return [(first, Register.DOWN, 0b01), (last, Register.DOWN, 0)]


@pytest.mark.parametrize(
    "stalls", [{}, {"backpressure": 0.7, "seed": 3}, {"idle": 0.6, "backpressure": 0.4, "seed": 5}],
    ids=["straight", "backpressure", "both"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["narrow", "tiny", "wide"])
def test_exactly_what_is_under_way_is_lost(name, stalls):
    config = CONFIGS[name]
    ours: list[dict] = [
        {"opcode": Opcode.WRITE, "payload_bytes": 100, "group": 0b01},
        {"opcode": Opcode.READ, "length": 64, "sequence": 7},
        {"opcode": Opcode.PING},
        {"opcode": Opcode.READ, "length": 16, "sequence": 9},
    ]
    beats = [config.request_beats + -(-size // config.beat_bytes) for size in (100, 0, 0, 0)]
    payloads = [b"", read_bytes(7, 64), b"", read_bytes(9, 16)]
    theirs: list[dict] = [{"port": 1, "opcode": Opcode.READ, "length": 64, "sequence": index} for index in range(8)]
    lost_counts = [0] * 4
    with open_harness(name) as harness:
        # The stand-in takes registers in odd cycles only.
        for shift in (0, 1):
            batch = batch_of(*ours, *theirs)
            batch["earliest_cycle"][0] = shift
            harness.reset(BOOT_EPOCH)
            free = harness.run(batch, bytes(100), max_cycles=LIMIT_CYCLES, **stalls).results
            for cycle in range(0, int(free["last_cycle"][3]) + 4, 2):
                harness.reset(BOOT_EPOCH)
                registers = down_and_up(cycle, cycle + 40)
                run = harness.run(batch, bytes(100), max_cycles=LIMIT_CYCLES, registers=registers, **stalls)
                down, up = (int(taken) + PIN_CYCLES for taken in run.registers["accepted_cycle"])
                for index, (result, alone) in enumerate(zip(run.results[:4], free)):
                    lost = result["done"] == Done.LOST
                    lost_counts[index] += lost
                    if not stalls:
                        first_cycle = int(alone["sent_cycle"]) - beats[index] + 1
                        assert lost == (first_cycle < down <= alone["last_cycle"])
                    if lost:
                        assert (result["last_cycle"], result["tries"], result["data_bytes"]) == (down, 1, 0)
                        assert not result["header"].tobytes().strip(b"\0")
                        continue
                    assert (result["done"], result["header"]["count"]) == (Done.ANSWERED, beats[index])
                    assert run.payload(index) == payloads[index]
                    if alone["last_cycle"] < down:
                        assert result == alone
                    else:
                        assert result["sent_cycle"] >= up + beats[index] - 1
                assert list(run.results["done"]).count(Done.LOST) <= 1
                assert run.results[4:]["header"].tobytes() == free[4:]["header"].tobytes()
    assert all(lost_counts)


def test_partly_sent_request_is_lost_and_the_next_arrives_whole(tiny):
    batch = batch_of({"payload_bytes": 320}, {"payload_bytes": 32})
    run = tiny.run(batch, bytes(320), max_cycles=LIMIT_CYCLES, registers=down_and_up(8, 100))
    lost, next_one = run.results
    down, up = (int(taken) + PIN_CYCLES for taken in run.registers["accepted_cycle"])
    assert (lost["done"], lost["sent_cycle"], lost["last_cycle"], lost["tries"]) == (Done.LOST, 0, down, 1)
    assert (next_one["sent_cycle"], next_one["header"]["count"]) == (up + 5, 6)
    # The stand-in swallows what it is offered while it is down.
    assert run.request_beats[0] == down + 6


def test_all_that_were_sent_are_lost_together(tiny):
    silent = {"members": Fault.SILENT}
    batch = batch_of(silent, silent, silent, {"earliest_cycle": 70})
    run = tiny.run(batch, max_cycles=LIMIT_CYCLES, registers=down_and_up(60, 80))
    down = int(run.registers["accepted_cycle"][0]) + PIN_CYCLES
    assert list(run.results["done"]) == [Done.LOST] * 3 + [Done.ANSWERED]
    assert list(run.results["last_cycle"][:3]) == [down] * 3


def test_request_that_waits_is_lost(tiny):
    waits = {"member": 1, "patience": 1000}
    run = tiny.run(batch_of(waits, {}), max_cycles=LIMIT_CYCLES, registers=down_and_up(60, 80))
    down, up = (int(taken) + PIN_CYCLES for taken in run.registers["accepted_cycle"])
    lost, next_one = run.results
    assert (lost["done"], lost["tries"], lost["sent_cycle"], lost["last_cycle"]) == (Done.LOST, 1, 3, down)
    assert not lost["header"].tobytes().strip(b"\0")
    assert (next_one["done"], next_one["sent_cycle"]) == (Done.ANSWERED, up + 3)


def test_request_that_is_sent_again_is_lost(tiny):
    for cycle in range(90, 116):
        tiny.reset()
        run = tiny.run(
            batch_of({"member": 1, "patience": 100, "ttl": Status.GRANTED}, {}),
            max_cycles=LIMIT_CYCLES, registers=down_and_up(cycle, 160),
        )  # fmt: skip
        down = int(run.registers["accepted_cycle"][0]) + PIN_CYCLES
        # Sent again in cycles 103 to 106, answered in 108 and 109; then comes the next, with its answer in 116.
        first, second = run.results
        assert first["done"] == (Done.LOST if down <= 109 else Done.ANSWERED)
        assert first["tries"] == (1 if down <= 103 else 2)
        assert second["done"] == (Done.LOST if 110 < down <= 116 else Done.ANSWERED)


def test_lost_request_counts_as_answered_but_gives_nothing(tiny):
    batch = batch_of(
        {"port": 0, "opcode": Opcode.SESSION_OPEN, "members": Fault.SILENT},
        {"port": 1, "after": 0},
        {"port": 1, "handle_from": 0},
        {"port": 1, "session_from": 0},
    )
    run = tiny.run(batch, max_cycles=LIMIT_CYCLES, registers=[(20, Register.DOWN, 0b01)])
    assert list(run.results["done"]) == [Done.LOST, Done.ANSWERED, Done.SKIPPED, Done.SKIPPED]
    assert run.results["sent_cycle"][1] == run.results["last_cycle"][0] + 4


def test_wake_is_cut_off_with_its_port():
    with open_harness("narrow") as harness:
        for cycle in range(0, 24):
            harness.reset(BOOT_EPOCH)
            batch = batch_of({"port": 1, "group": 0b01, "earliest_cycle": 8}, {"port": 0, "earliest_cycle": 100})
            run = harness.run(batch, max_cycles=LIMIT_CYCLES, registers=down_and_up(cycle, cycle + 20))
            down, up = (int(taken) + PIN_CYCLES for taken in run.registers["accepted_cycle"])
            # Sent in cycles 8 to 15, traced in 16; the wake is taken in 17 to 20.
            assert run.wakes[0] == (down > 20 or up <= 16)
            assert run.results["done"].tolist() == [Done.ANSWERED] * 2


def test_port_stays_down_from_run_to_run(tiny):
    tiny.write_register(Register.DOWN, 0b01)
    tiny.idle(20)
    assert tiny.run(batch_of({"port": 1}), max_cycles=LIMIT_CYCLES).results[0]["done"] == Done.ANSWERED
    run = tiny.run(batch_of({"port": 0}), max_cycles=LIMIT_CYCLES, registers=[(50, Register.DOWN, 0)])
    up = int(run.registers["accepted_cycle"][0]) + PIN_CYCLES
    assert (run.results[0]["done"], run.results[0]["sent_cycle"]) == (Done.ANSWERED, up + 3)


def test_stall_says_that_the_port_is_down(tiny):
    tiny.write_register(Register.DOWN, 0b01)
    with pytest.raises(HarnessStall, match="is not sent: 0 of its 4 beats were accepted, and its port is down"):
        tiny.run(batch_of({"port": 0}), max_cycles=100)
