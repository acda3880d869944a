"""Store: every port reads and writes in every cycle, and what is read was written."""

import pytest

from kvnode.models.spec.timing import bank_of_port
from kvnode.rtl.node.store import Store
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_store"
CYCLES = 3000
READ_CYCLES = 3


@bench_test(max_cycles=CYCLES + 20)
async def reads_what_any_port_wrote(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    ports = range(config.ports)
    rows = config.slots * config.bank_rows_per_block
    banks = [{} for _ in ports]
    # For each port the words that may come in the next cycles: None for no data.
    coming = [[None] * READ_CYCLES for _ in ports]
    checked = 0
    await bench.start()
    for cycle in range(CYCLES):
        few = (rows, 3)[cycle // 100 % 2]
        always = cycle % 500 < 250
        bench.drive(rotation=cycle % config.ports)
        writes = []
        for port in ports:
            bank = bank_of_port(cycle, port, config.ports)
            read, write = (always or rng.getrandbits(1) for _ in range(2))
            read_row, write_row, word = rng.randrange(few), rng.randrange(few), rng.getrandbits(8 * config.beat_bytes)
            bench.drive(**{f"read_valid__{port}": read, f"read_row__{port}": read_row, f"write_valid__{port}": write,
                           f"write_row__{port}": write_row, f"write_data__{port}": word})  # fmt: skip
            may_come = None
            if read:
                may_come = {banks[bank].get(read_row)}
                if write and write_row == read_row:
                    may_come.add(word)
            coming[port].append(may_come)
            if write:
                writes.append((bank, write_row, word))
        await bench.step()
        for bank, row, word in writes:
            banks[bank][row] = word
        for port in ports:
            may_come = coming[port].pop(0)
            at = f"cycle {cycle}, port {port}"
            assert bench.get(f"data_valid__{port}") == (may_come is not None), at
            if may_come is None:
                assert bench.get(f"read_data__{port}") == 0, at
            elif None not in may_come:
                assert bench.get(f"read_data__{port}") in may_come, at
                checked += 1
    assert checked > CYCLES // 2 * config.ports


@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_every_port_reads_and_writes_in_every_cycle(config):
    run_bench(Store(config_of(config)), MODULE, parameters={"config": config})
