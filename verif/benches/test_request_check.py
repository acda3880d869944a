"""RequestCheck: random and almost well-formed headers against `models.spec.requests.check_request`."""

from collections import Counter

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, NUMBERED, REQUEST, VERSION
from kvnode.models.spec.requests import (
    BY_EITHER,
    BY_HANDLE_ONLY,
    BY_KEY,
    MAX_MEMBERS,
    OF_SESSION,
    PUBLIC_OPCODES,
    USED_FIELDS,
    WITH_LEASE,
    WITH_PAYLOAD,
    WITH_PORTS,
    Handle,
    check_request,
    names_handle,
    span_bytes,
)
from kvnode.rtl.node.request_check import Products, RequestCheck, products
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_request_check"
HEADERS = 6000
BOOT_EPOCH = 5


class Checked(wiring.Component):
    """A RequestCheck with the products of its header, as in its port."""

    def __init__(self, config, port):
        self.config, self.check = config, RequestCheck(config, port)
        self.through = {name: m for name, m in self.check.signature.members.items() if name != "products"}
        super().__init__(self.through | {"products": Out(Products(config))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = self.check
        for name, member in self.through.items():
            outer, inner = getattr(self, name), getattr(check, name)
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        products(m, self.config, self.header, check.products)
        m.d.comb += self.products.eq(check.products)
        return m


def handle_of(rng, config, number):
    """The fields of a handle, of which one in seven is stale."""
    part = config.partitions[number]
    slot, generation, epoch = rng.randrange(part.slots), rng.getrandbits(config.generation_bits), BOOT_EPOCH
    stale = rng.randrange(20)
    if stale == 0:
        slot += part.slots << rng.randrange(4)
    elif stale == 1 and config.generation_bits < 32:
        generation += 1 << rng.randrange(config.generation_bits, 32)
    elif stale == 2:
        epoch ^= 1 << rng.randrange(32)
    return {"slot": slot, "generation": generation, "boot_epoch": epoch, "lease": rng.getrandbits(32)}


def runs_of(rng, config):
    """Run, stride (bytes) and count of a READ in runs that fit, often just so."""
    beats, beat = config.block_beats, config.beat_bytes
    count = rng.choice((1, 2, beats, rng.randint(1, beats)))
    run = rng.choice((1, beats // count, rng.randint(1, beats // count)))
    most = (beats - run) // (count - 1) if count > 1 else beats
    stride = rng.choice((0, most, rng.randint(0, most)))
    return run * beat, stride * beat, count


def well_formed(rng, config, port):
    """Fields of a header that is in order but for, sometimes, its handle or its ports; and whether payload follows."""
    own, beat, beats = config.partition_of_port[port], config.beat_bytes, config.block_beats
    opcode = rng.choice(list(Opcode))
    used = USED_FIELDS[opcode]
    header = dict.fromkeys(REQUEST.fields, 0) | {
        "opcode": opcode, "version": VERSION, "klass": rng.randrange(4), "tag": rng.getrandbits(16),
        "model_id": rng.randrange(config.models), "group": rng.getrandbits(8), "partition": own,
    }  # fmt: skip
    if "session" in used and (opcode in OF_SESSION or rng.getrandbits(1)):
        header["session"] = NUMBERED | rng.getrandbits(config.session_bits + config.session_generation_bits)
        header["session_epoch"] = rng.getrandbits(16)
        if "sequence" in used:
            header["sequence"] = rng.choice((0, rng.getrandbits(32)))
    for name in ("ttl", "deadline"):
        if name in used:
            header[name] = rng.getrandbits(8)
    by_handle = opcode in BY_HANDLE_ONLY or opcode in BY_EITHER and rng.getrandbits(1)
    if by_handle and (opcode in BY_EITHER or rng.getrandbits(1)):
        header["flags"] |= Flag.BY_HANDLE
    if opcode in WITH_LEASE and rng.getrandbits(1):
        header["flags"] |= Flag.LEASE
    if opcode in BY_KEY and header["session"] and not by_handle and rng.getrandbits(1):
        header["flags"] |= Flag.PRIVATE
    if opcode in PUBLIC_OPCODES and config.public_partition is not None and rng.randrange(4) == 0:
        header["partition"] = config.public_partition
        if rng.randrange(4):
            header |= {"session": 0, "session_epoch": 0, "sequence": 0}
            header["flags"] &= Flag.BY_HANDLE
    if "member" in used:
        header["member"] = rng.randrange(MAX_MEMBERS)
    if opcode in (Opcode.READ, Opcode.WRITE):
        header["offset"] = beat * rng.randrange(beats)
    handle = handle_of(rng, config, header["partition"])
    if opcode == Opcode.READ:
        header["length"] = beat * rng.randrange(beats + 1)
        if by_handle and rng.getrandbits(1):
            header["length"], handle["stride"], handle["count"] = runs_of(rng, config)
    elif opcode in (Opcode.PUT_START, Opcode.PUT_END):
        members = rng.randint(1, min(MAX_MEMBERS, beats))
        share = rng.choice((1, beats // members, rng.randint(1, beats // members)))
        shares = {"members": members, "member": rng.randrange(members), "length": share * beat}
        if members == 1:
            shares["members"] = rng.getrandbits(1)
            shares["length"] *= opcode == Opcode.PUT_START
        header |= shares
        handle["crc"] = rng.getrandbits(32) if opcode == Opcode.PUT_END else 0
    elif opcode == Opcode.WRITE:
        header["length"] = beat * rng.randint(1, config.max_payload_bytes // beat)
    elif opcode == Opcode.MATCH:
        header["length"] = 32 * rng.randint(1, config.max_payload_bytes // 32)
    if by_handle:
        header["digest"] = int.from_bytes(HANDLE.pack(**handle), "little")
    elif opcode in WITH_PORTS:
        header["digest"] = config.port_masks[own] & rng.getrandbits(config.ports)
        if rng.randrange(10) == 0:
            header["digest"] |= 1 << rng.randrange(32)
    elif opcode in BY_KEY and opcode != Opcode.MATCH:
        header["digest"] = rng.getrandbits(config.digest_bits)
    return header, opcode in WITH_PAYLOAD


def corners(config, bits):
    """Values of a field around everything that matters to it."""
    edges = {0, config.beat_bytes, config.block_bytes, config.block_beats, config.max_payload_bytes, 32, config.models,
             4, VERSION, len(Opcode), MAX_MEMBERS, config.sessions, *(1 << n for n in range(bits)),
             *(part.slots for part in config.partitions)}  # fmt: skip
    return sorted({value + step & (1 << bits) - 1 for value in edges for step in (-1, 0, 1)})


def changed(rng, config, value, bits):
    """Another value of a field: a corner, one bit away, or one beat."""
    step = rng.randrange(3)
    if step == 0:
        return rng.choice(corners(config, bits))
    if step == 1:
        return value ^ 1 << rng.randrange(bits)
    return value + rng.choice((-1, 1)) * rng.choice((1, config.beat_bytes, 32)) & (1 << bits) - 1


def spoiled(rng, config, header):
    """The header with a field changed; of a handle one of its parts."""
    header = dict(header)
    name = rng.choice(list(header))
    if name == "digest" and names_handle(header) or rng.randrange(6) == 0:
        handle = Handle.of(header["digest"])._asdict()
        part = rng.choice(list(handle))
        handle[part] = changed(rng, config, handle[part], 32)
        header["digest"] = int.from_bytes(HANDLE.pack(**handle), "little")
    else:
        header[name] = changed(rng, config, header[name], REQUEST.fields[name].size_bits)
    return header


def expected_products(config, header):
    """Those that the port uses of a header that is in order, in beats."""
    opcode, beat = header["opcode"], config.beat_bytes
    if opcode == Opcode.READ:
        handle = Handle.of(header["digest"])
        if names_handle(header) and handle.count:
            total = header["length"] * handle.count
            return {"total": total // beat, "span": span_bytes(header, handle) // beat}
    elif opcode in (Opcode.PUT_START, Opcode.PUT_END):
        share, members = header["length"] // beat, header["members"] or 1
        before, behind = header["member"], members - 1 - header["member"]
        return {"total": share * members, "before": share * before, "behind": share * behind}
    return {}


@bench_test(max_cycles=1_000_000)
async def equals_the_rules(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    made = Fields(Products(config))
    seen, elsewhere = Counter(), 0
    await bench.start()
    for _ in range(HEADERS):
        for port in range(config.ports):
            header, has_payload = well_formed(rng, config, port)
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
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
                assert bench.get(f"p{port}__by_handle") == names_handle(header)
                products = expected_products(config, header)
                values = made.unpack(bench.get(f"p{port}__products"))
                assert {name: values[name] for name in products} == products, header
                seen["runs"] += "span" in products
                seen["shares"] += products.get("before", 0) > 0
                elsewhere += header["partition"] != config.partition_of_port[port]
                seen[Opcode(header["opcode"]).name] += 1
            seen[port, expected.name] += 1
    for port in range(config.ports):
        for status in (Status.OK, Status.BAD_REQUEST, Status.DENIED, Status.STALE_HANDLE):
            assert seen[port, status.name] > HEADERS // 100, (port, status.name)
    assert all(seen[name] > HEADERS // 100 for name in ("runs", "shares", *Opcode.__members__)), seen
    assert (elsewhere > HEADERS // 100) == (config.public_partition is not None)


@pytest.mark.parametrize("config", ["tiny", "quad_public", "sim"])
def test_headers_are_refused_by_the_rules(config):
    checks = {f"p{port}": Checked(config_of(config), port) for port in range(config_of(config).ports)}
    run_bench(Together(**checks), MODULE, parameters={"config": config})
