"""RequestCheck: random and almost well-formed headers against `models.spec.requests.check_request`."""

import pytest

from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import REQUEST, VERSION
from kvnode.models.spec.requests import BY_EITHER, BY_HANDLE_ONLY, WITH_PAYLOAD, check_request
from kvnode.rtl.node.request_check import RequestCheck
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_request_check"
HEADERS = 6000
BOOT_EPOCH = 5


def well_formed(rng, config, port):
    """Fields of a header that is in order but for, sometimes, its handle; and whether payload follows."""
    number = config.partition_of_port[port]
    part, beat = config.partitions[number], config.beat_bytes
    opcode = rng.choice([op for op in Opcode if op <= Opcode.DROP])
    by_handle = opcode in BY_HANDLE_ONLY or opcode in BY_EITHER and rng.getrandbits(1)
    header = {
        "opcode": opcode, "version": VERSION, "klass": rng.randrange(4), "tag": rng.getrandbits(16),
        "model_id": rng.randrange(config.models), "group": rng.getrandbits(8), "partition": number,
        "flags": int(by_handle) if opcode in BY_EITHER else rng.getrandbits(1) if by_handle else 0,
    }  # fmt: skip
    if by_handle:
        slot, generation, epoch = rng.randrange(part.slots), rng.getrandbits(config.generation_bits), BOOT_EPOCH
        stale = rng.randrange(20)
        if stale == 0:
            slot += part.slots << rng.randrange(4)
        elif stale == 1:
            generation += 1 << rng.randrange(config.generation_bits, 32)
        elif stale == 2:
            epoch ^= 1 << rng.randrange(32)
        header["digest"] = slot | generation << 32 | epoch << 64
    elif opcode not in (Opcode.MATCH, Opcode.PING):
        header["digest"] = rng.getrandbits(config.digest_bits)
    if opcode in (Opcode.READ, Opcode.WRITE):
        header["offset"] = beat * rng.randrange(config.block_beats)
    if opcode == Opcode.READ:
        header["length"] = beat * rng.randrange(config.block_beats + 1)
    elif opcode == Opcode.PUT_START:
        header["length"] = beat * rng.randint(1, config.block_beats)
    elif opcode == Opcode.WRITE:
        header["length"] = beat * rng.randint(1, config.max_payload_bytes // beat)
    elif opcode == Opcode.MATCH:
        header["length"] = 32 * rng.randint(1, config.max_payload_bytes // 32)
    return dict.fromkeys(REQUEST.fields, 0) | header, opcode in WITH_PAYLOAD


def corners(config, bits):
    """Values of a field around everything that matters to it."""
    edges = {0, config.beat_bytes, config.block_bytes, config.max_payload_bytes, 32, config.models, 4, VERSION,
             *(1 << n for n in range(bits)), *(part.slots for part in config.partitions)}  # fmt: skip
    return sorted({value + step & (1 << bits) - 1 for value in edges for step in (-1, 0, 1)})


def spoiled(rng, config, header):
    """The header with a field changed: to a corner, by a bit, or by one beat."""
    header = dict(header)
    name = rng.choice(list(header))
    bits = REQUEST.fields[name].size_bits
    step = rng.randrange(3)
    if step == 0:
        header[name] = rng.choice(corners(config, bits))
    elif step == 1:
        header[name] ^= 1 << rng.randrange(bits)
    else:
        header[name] = header[name] + rng.choice((-1, 1)) * rng.choice((1, config.beat_bytes, 32)) & (1 << bits) - 1
    return header


@bench_test(max_cycles=1_000_000)
async def equals_the_rules(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    seen = {}
    await bench.start()
    for _ in range(HEADERS):
        for port in range(config.ports):
            header, has_payload = well_formed(rng, config, port)
            for _ in range(rng.randrange(3)):
                header = spoiled(rng, config, header)
            if rng.randrange(20) == 0:
                has_payload = not has_payload
            if rng.randrange(20) == 0:
                header = REQUEST.unpack(rng.randbytes(REQUEST.size_bytes))
            expected = check_request(config, port, BOOT_EPOCH, header, 32 if has_payload else 0)
            word = int.from_bytes(REQUEST.pack(**header), "little")
            bench.drive(**{f"p{port}__header": word, f"p{port}__has_payload": has_payload,
                           f"p{port}__boot_epoch": BOOT_EPOCH})  # fmt: skip
            await bench.settle()
            found = Status(bench.get(f"p{port}__status"))
            assert found == expected, f"port {port}: {found.name}, expected {expected.name}: {header}"
            if expected == Status.OK:
                by_handle = header["opcode"] in BY_HANDLE_ONLY or header["flags"] == 1
                assert bench.get(f"p{port}__by_handle") == by_handle
            seen[port, expected] = seen.get((port, expected), 0) + 1
    for port in range(config.ports):
        for status in (Status.OK, Status.BAD_REQUEST, Status.DENIED, Status.STALE_HANDLE):
            assert seen.get((port, status), 0) > HEADERS // 100, (port, status.name)


@pytest.mark.parametrize("config", ["tiny", "sim"])
def test_headers_are_refused_by_the_rules(config):
    checks = {f"p{port}": RequestCheck(config_of(config), port) for port in range(config_of(config).ports)}
    run_bench(Together(**checks), MODULE, parameters={"config": config})
