"""No state without a declared owner: the isolation proofs take their invariants from these declarations."""

import re

import pytest

from kvnode.models.spec.config import preset
from kvnode.rtl import crc, elaborate, memory, stream, trace, wheel
from kvnode.rtl.csr import bank
from kvnode.rtl.node import (
    block_table,
    counters,
    directory,
    events,
    fill_table,
    index,
    leases,
    management,
    match_walk,
    partitions,
    port,
    responder,
    sessions,
    settings,
    store,
    sweeper,
    transfer,
)
from kvnode.rtl.ownership import By, Owned, owner_of

#: Which component a submodule of the node is, by the end of its path.
COMPONENTS = {
    r"wheel": wheel.Wheel,
    r"directory": directory.Directory,
    r"directory\.index": index.Index,
    r"directory\.blocks": block_table.BlockTable,
    r"directory\.fills": fill_table.FillTable,
    r"directory\.free": partitions.FreeLists,
    r"directory\.sessions": sessions.Sessions,
    r"directory\.leases": leases.Leases,
    r"directory\.settings": settings.Settings,
    r"directory\.beside": memory.DelayLine,
    r"directory\.trace_port": trace.TracePort,
    r"store": store.Store,
    r"sweeper": sweeper.Sweeper,
    r"sweeper\.queues": partitions.RetireQueues,
    r"port\d+": port.Port,
    r"port\d+\.reader": transfer.ReadEngine,
    r"port\d+\.writer": transfer.WriteEngine,
    r"port\d+\.writer\.lane": crc.CrcLane,
    r"port\d+\.shift": crc.CrcShift,
    r"port\d+\.walk": match_walk.MatchWalk,
    r"port\d+\.responder": responder.Responder,
    r"port\d+\.payload": stream.Queue,
    r"management": management.Management,
    r"management\.bank": bank.RegisterBank,
    r"management\.events": events.EventRing,
    r"management\.counters": counters.Counters,
    r"management\.histogram": counters.LatencyHistogram,
    r"management\.histogram\.tally_\d+": counters.Tally,
}


def state_of(text):
    """(path of the module below the node, name) of every register and memory in generated Verilog."""
    for module in re.split(r"^module \\kvnode_node\.node\.", text, flags=re.M)[1:]:
        path = module.split("(")[0].strip().split(".")
        if "kvnode_ram #(" in module:
            yield ".".join(path[:-1]), path[-1]
        clocked = r"always @\(posedge \\?clk\)\s*\n\s*(?:begin\s*)?"
        registers = re.findall(clocked + r"\\?([\w$.]+) *(?:\[[^\]]*\])? *<=", module)
        memories = re.findall(r"^\s*reg \[[^\]]*\] \\?([\w$.]+) *\[", module, flags=re.M)
        for name in sorted({*registers, *memories} - {"memory", "read_data"}):
            yield ".".join(path), name


def owners(text):
    """(path, name, component, its declaration) of every piece of state."""
    for path, name in state_of(text):
        parts = path.split(".") if path else []
        for size in range(len(parts), 0, -1):
            known = [c for pattern, c in COMPONENTS.items() if re.fullmatch(pattern, ".".join(parts[:size]))]
            if known:
                inner = ".".join([*parts[size:], name])
                yield path, inner, known[0], owner_of(known[0], inner)
                break
        else:
            yield path, name, None, None


@pytest.fixture(scope="module")
def found():
    return list(owners(elaborate.verilog(preset("tiny"))))


def test_every_register_and_memory_has_an_owner(found):
    assert len(found) > 400
    assert [(path, name) for path, name, _, own in found if own is None] == []


def test_every_declaration_is_about_something(found):
    used = {(component, own) for _, _, component, own in found}
    declared = {(component, own) for component in COMPONENTS.values() for own in component.OWNERSHIP}
    assert declared - used == set()


def test_every_tag_is_a_register_of_the_pipeline(found):
    names = {name for path, name, *_ in found}
    tags = {o.tag for c in COMPONENTS.values() for o in c.OWNERSHIP if o.by == By.TAG}
    assert tags - names == {"sweeper.partition"}
    assert all(o.tag == "" for c in COMPONENTS.values() for o in c.OWNERSHIP if o.by != By.TAG)


def test_state_that_nobody_declares_is_noticed():
    text = "module \\kvnode_node.node.wheel (clk);\n  reg odd;\n  always @(posedge clk)\n    odd <= 1'h1;\nendmodule\n"
    ((path, name, component, own),) = owners(text)
    assert (path, name, component, own) == ("wheel", "odd", wheel.Wheel, None)
    assert Owned("od?", By.PUBLIC).matches("odd")
