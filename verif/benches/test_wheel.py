"""Wheel: the two counters against arithmetic on the cycle number."""

import pytest

from kvnode.models.spec.timing import bank_of_port, owner_of_turn
from kvnode.rtl.wheel import Wheel
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.runner import run_bench

CYCLES = 200


@bench_test(max_cycles=CYCLES + 20)
async def counts_from_reset(dut):
    bench = Bench(dut)
    ports = bench.parameters["ports"]
    await bench.start()
    for cycle in range(CYCLES):
        await bench.step()
        assert bench.get("turn") == owner_of_turn(cycle, ports) == cycle % (ports + 1)
        assert bench.get("rotation") == bank_of_port(cycle, 0, ports) == cycle % ports


@pytest.mark.parametrize("ports", [2, 8])
def test_turn_and_rotation_count_modulo_their_own_size(ports):
    assert run_bench(Wheel(ports), "kvnode.verif.benches.test_wheel", parameters={"ports": ports}) == 1
