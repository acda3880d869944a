"""Non-interference of the whole node by self-composition, from the declared ownership of its state.

Two copies of the node. Tenant A (a partition) has the same state and the same inputs in both, and the operator as well;
everything of the others is free, and different in each. Shown by induction: in every following cycle A's state and
A's outputs are equal again. What is A's comes from each block's OWNERSHIP; nothing here knows what a block does, but
for where its rows lie (ROWS_BY) and in which stage a memory's word is looked at (READ_AT).

Used by: node_claims.
"""

import fnmatch
import functools
import re
from collections.abc import Callable

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

from kvnode.models.spec.config import NodeConfig
from kvnode.rtl.csr.bank import BUS
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.directory import head_layout, verdict_layout
from kvnode.rtl.node.index import event_layout
from kvnode.rtl.node.node import Node
from kvnode.rtl.ownership import By, Owned, owner_of

from .design import FREE, Design, Part
from .proof import ProofOf

#: Not visible to any tenant, and too large to be worth its logic: anything may come out of them.
CUT = ("management.counters", "management.events", "management.histogram")

#: Within a port, and the port's alone: much logic between registers, whose outputs are the same when its inputs are.
FUNCTIONS = ("writer.lane", "shift")
#: The stage head, or the sweeper's partition, in whose cycle the output register of a memory is looked at.
READ_AT = {
    "index.table*": "s4_head",
    "blocks.keys": "s7_head",
    "blocks.states": "s7_head",
    "free.even": "s5_head",
    "free.odd": "s5_head",
    "fills.rows.ram": "s8_head",
    "fills.parts.ram": "s8_head",
    "sessions.rows.ram": "s8_head",
    "leases.rows.ram": "s8_head",
    "beside.ram": "s5_head",
    "fills.slots": "sweeper",
    "leases.looks": "sweeper",
    "queues.ram": "sweeper",
}
#: Memories of which each partition has as many rows as any other; of the rest, in proportion to its slots.
EQUAL_SHARES = ("*epochs", "fills.*", "sessions.*", "leases.*")


def _short(path: str) -> str:
    """A memory's path as READ_AT and EQUAL_SHARES have it: below the directory or the sweeper."""
    return path.removeprefix("directory.").removeprefix("sweeper.")


def _trailing_number(name: str) -> int:
    found = re.search(r"(\d+)$", name)
    if not found:
        raise ValueError(f"{name}: its owner's number should end its name")
    return int(found[1])


class Copy:
    """One of the two nodes, and which of its state is partition `tenant`'s."""

    def __init__(self, config: NodeConfig, tenant: int, free: Callable[[str, int], Signal], functions: tuple[str, ...]):
        self.config, self.tenant, self.shapes = config, tenant, Shapes(config)
        self.node = Node(config)
        self.ports = config.partitions[tenant].ports
        self.functions = [f"port{port}.{name}" for port in range(config.ports) for name in functions]
        self.design = Design(self.node, (*CUT, *self.functions), free)

    def holder(self, path: str) -> str:
        """The path of the nearest block around what is at a path that declares owners."""
        place = path
        while place:
            place = place.rpartition(".")[0]
            if place in self.design.parts and self.design.parts[place].component is not None:
                return place
        raise ValueError(f"{path}: no block around it declares its owner")

    def declared(self, part: Part, name: str) -> tuple[str, Owned]:
        """The block around a register, and who owns the register, as that block declares; ValueError if it does not."""
        full = part.path.removesuffix(".ram") if part.rows else f"{part.path}.{name}"
        place = self.holder(full)
        found = owner_of(self.design.parts[place].component, full[len(place) :].lstrip("."))
        if found is None:
            raise ValueError(f"{full}: {place} does not declare its owner")
        return place, found

    def rows_of(self, path: str, depth: int) -> range:
        """The rows of a memory that are the tenant's."""
        partitions = self.config.partitions
        if any(fnmatch.fnmatchcase(_short(path), pattern) for pattern in EQUAL_SHARES):
            share = depth // len(partitions)
            return range(self.tenant * share, (self.tenant + 1) * share)
        base, slots = self.config.slot_bases[self.tenant], partitions[self.tenant].slots
        return range(depth * base // self.config.slots, depth * (base + slots) // self.config.slots)

    def head(self, stage: str):
        head = self.design[f"directory.{stage}"]
        return data.View(head_layout(self.shapes), head)

    def at(self, stage: str) -> Value:
        """Whether what stands in a stage is the tenant's."""
        if stage in ("sweeper", "sweeper.partition"):
            return self.design["sweeper.partition"] == self.tenant
        if stage == "result_owner":
            owner = self.design["directory.result_owner"]
            return self.design["directory.result_valid"] & _any(owner == port for port in self.ports)
        head = self.head(stage)
        return head.valid & (head.partition == self.tenant)

    def lane(self, bank: int, turn: str, valid: str = "") -> Value:
        """Whether the bank was one of the tenant's ports' when the wheel stood as the register `turn` says; with
        `valid`, also that the register of that name of the port is set.
        """
        rotation = self.design[f"store.{turn}"]
        return _any(
            ((rotation + port)[: len(rotation)] == bank) & (self.design[f"store.{valid}_{port}"] if valid else 1)
            for port in self.ports
        )

    def of_port(self, path: str, name: str) -> Value | None:
        """Whether what belongs to a port is the tenant's: of the port in whose block it is, or that ends its name."""
        inside = re.match(r"port(\d+)", path)
        port = int(inside[1]) if inside else _trailing_number(name)
        return Const(1) if port in self.ports else None

    def guard(self, part: Part, name: str) -> Value | None:
        """When the register is the tenant's; None: never."""
        place, own = self.declared(part, name)
        match own.by:
            case By.PUBLIC:
                return Const(1)
            case By.MANAGEMENT:
                return None
            case By.PORT:
                return self.of_port(part.path, name)
            case _ if part.rows:
                return self._guard_memory(part, name, own)
            case By.NUMBER:
                return Const(1) if _trailing_number(name) == self.tenant else None
            case By.TAG:
                when = self.design[f"{place}.{own.when}"] if own.when else Const(1)
                return self.at(own.tag) & when
            case By.LANE:
                return self.lane(_trailing_number(name), "turn")
            case By.ADDRESS:
                return self._guard_forwarded(part, name)
        raise ValueError(own)

    def _guard_forwarded(self, part: Part, name: str) -> Value:
        """Commits of the cycle before, kept to be forwarded: of blocks and of the index."""
        if part.path == "directory.blocks":
            address, valid = self.design[f"{part.path}.previous_slot"], self.design[f"{part.path}.previous"]
            rows = self.rows_of("blocks", self.config.slots)
        else:
            event = data.View(event_layout(self.shapes), self.design[f"{part.path}.previous"])
            address, valid = event.address, event.valid
            rows = self.rows_of("index", self.config.index_rows)
        return valid & (address >= rows.start) & (address < rows.stop)

    def _guard_memory(self, part: Part, name: str, own: Owned) -> Value | None:
        path = part.path.removesuffix(".ram")
        row = re.fullmatch(r"row_(\d+)", name)
        if row is None:
            bank = re.fullmatch(r"store\.bank(\d+)", path)
            if bank:
                return self.lane(int(bank[1]), "bank_turn", "valid_read")
            stage = next(s for pattern, s in READ_AT.items() if fnmatch.fnmatchcase(_short(path), pattern))
            return self.at(stage)
        if own.by == By.TAG:
            # A delay line: what went in d cycles ago is beside stage d.
            line = self.design.parts["directory.beside"]
            position, cycles = line.registers["position"], line.component.cycles
            chosen = Const(0)
            for beside in range(1, cycles):
                written = (int(row[1]) + beside) % cycles
                chosen = Mux(position == written, self.at(f"s{beside}_head"), chosen)
            return chosen
        return Const(1) if int(row[1]) in self.rows_of(path, len(part.rows)) else None


def _any(values) -> Value:
    result = Const(0)
    for value in values:
        result = result | value
    return result


class NonInterference(ProofOf):
    """Tenant `tenant`'s outputs are the same in two nodes that differ in all that is not its own."""

    def __init__(self, config: NodeConfig, tenant: int, from_reset: bool = False):
        """`from_reset`: nothing but the outputs is checked, in runs that begin when the tables have been cleared."""
        super().__init__(config)
        self.tenant, self.from_reset = tenant, from_reset

    def describe(self, m: Module) -> None:
        config, tenant = self.config, self.tenant
        # What a function of a port of the tenant's gives is the same in both, as long as its inputs are.
        functions: dict[str, Signal] = {}
        own = tuple(f"port{port}_" for port in config.partitions[tenant].ports)

        def free(name: str, width: int, number: int) -> Signal:
            if not name.startswith(own):
                return self.free(f"{name}_{number}", width)
            if name not in functions:
                functions[name] = self.free(name, width)
            return functions[name]

        cut = () if self.from_reset else FUNCTIONS
        one, two = copies = [Copy(config, tenant, functools.partial(free, number=number), cut) for number in range(2)]
        for number, copy in enumerate(copies):
            m.submodules[f"node{number}"] = copy.design.fragment
        for path in one.functions:
            if int(path[4]) in one.ports:
                for name, value in one.design.cut_inputs[path].items():
                    self.check(f"{path}.{name}", value == two.design.cut_inputs[path][name])
        # The operator and the tenant do the same in both; everybody else does as they like.
        for name, width, driven in BUS:
            if not driven:
                shared = self.free(f"axi_{name}", width)
                m.d.comb += [getattr(copy.node, f"axi_{name}").eq(shared) for copy in copies]
        boot = self.free("boot_epoch", config.boot_epoch_bits)
        m.d.comb += [copy.node.boot_epoch.eq(boot) for copy in copies]
        for port in range(config.ports):
            mine = port in one.ports
            for name, width in (("valid", 1), ("data", 8 * config.beat_bytes), ("last", 1), ("ready", 1)):
                shared = self.free(f"p{port}_{name}", width) if mine else None
                for number, copy in enumerate(copies):
                    value = self.free(f"p{port}_{name}_{number}", width) if shared is None else shared
                    req, rsp = copy.node.req[port], copy.node.rsp[port]
                    target = {"valid": req.valid, "data": req.p.data, "last": req.p.last, "ready": rsp.ready}[name]
                    m.d.comb += target.eq(value)

        # What the tenant sees.
        for port in one.ports:
            for name, a, b in (
                ("req_ready", one.node.req[port].ready, two.node.req[port].ready),
                ("rsp_valid", one.node.rsp[port].valid, two.node.rsp[port].valid),
                ("rsp_data", one.node.rsp[port].p.data, two.node.rsp[port].p.data),
                ("rsp_last", one.node.rsp[port].p.last, two.node.rsp[port].p.last),
            ):
                self.check(f"p{port}_{name}", a == b)
        if self.from_reset:
            for copy in copies:
                self._begin_cleared(copy)
            other = next(port for port in range(config.ports) if port not in one.ports)
            asks = [copy.node.req[other].valid & copy.node.req[other].ready for copy in copies]
            mine = one.node.req[one.ports[0]]
            self.cover("another_asks", mine.valid & mine.ready & (asks[0] != asks[1]))
            return
        self._same(one, two)
        for number, copy in enumerate(copies):
            self._well_formed(number, copy)

    def _begin_cleared(self, copy: Copy) -> None:
        walk = copy.design["directory.walk"]
        walk._init = copy.design.parts["directory"].component.clear_cycles
        for _, _, signal in copy.design.registers():
            signal.attrs.pop(FREE, None)

    def _same(self, one: Copy, two: Copy) -> None:
        """The tenant's state is equal in both: in the first cycle by assumption, for memories begin with anything."""
        first = self.first()
        always: dict[int, Signal] = {}
        for (part, name, a), (_, _, b) in zip(one.design.registers(), two.design.registers(), strict=True):
            path = f"{part.path}.{name}"
            if name == "wakes":
                mask = sum(1 << port for port in one.ports)
                self.check(path, (a & mask) == (b & mask))
                continue
            guard, other = one.guard(part, name), two.guard(two.design.parts[part.path], name)
            if guard is not None:
                self.check(path, (guard == other) & (~guard[0] | (a == b)))
                if isinstance(guard, Const):
                    always[id(b)] = a
                if part.rows:
                    self.assume(path, ~first | (a == b))
        # What comes to a port of the tenant's.
        for port in one.ports:
            inside = [copy.design.parts[f"port{port}"].component for copy in (one, two)]
            members = [list(part.signature.flatten(part)) for part in inside]
            for (steps, member, a), (_, _, b) in zip(*members, strict=True):
                name = "_".join(str(step) for step in steps)
                if member.flow == In and not name.startswith(("req", "rsp")):
                    a, b = Value.cast(a), Value.cast(b)
                    self.check(f"port{port}.comes.{name}", a == b)
                    always[id(b)] = a
        # What is equal in a state is read in one place: then most of the tenant's logic is the same logic in both, and
        # nothing is left to show of it. In the step of an induction that is the hypothesis, no more.
        two.design.read_instead(always)

    def _well_formed(self, number: int, copy: Copy) -> None:
        """What holds in all states of a node, whoever does what: everybody's things stay where they belong."""
        config, design, shapes = copy.config, copy.design, copy.shapes
        partitions = config.partitions
        slot_bases = Array(config.slot_bases)
        slot_masks = Array(p.slots - 1 for p in partitions)
        row_bases = Array(base // config.ways for base in config.slot_bases)
        row_masks = Array((1 << log2) - 1 for log2 in config.rows_log2)

        def check(name: str, condition: Value) -> None:
            self.check(f"belongs_{number}.{name}", condition)

        # The sweeper's registers say of this cycle what the wheel says.
        turn, partition = design["wheel.turn"], design["sweeper.partition"]
        check("turn", turn <= config.ports)
        check("own_turn", design["sweeper.own_turn"] == (turn == config.ports))
        check(
            "swept_partition",
            Mux(turn == config.ports, partition < len(partitions), partition == Array(config.partition_of_port)[turn]),
        )
        line = design.parts["directory.beside"]
        check("position", line.registers["position"] < line.component.cycles)
        # A queue's places are in the queue.
        for part in design.parts.values():
            if part.path.endswith(".fifo"):
                depth = len(design.rows(f"{part.path}.storage"))
                for name in ("produce", "consume"):
                    check(f"{part.path}.{name}", part.registers[name] < depth)
        for stage in range(1, 9):
            head = copy.head(f"s{stage}_head")
            for port, partition in enumerate(config.partition_of_port):
                check(f"s{stage}_owner_{port}", ~(head.valid & (head.owner == port)) | (head.partition == partition))
            check(f"s{stage}_partition", ~head.valid | (head.partition < len(partitions)))
            if 2 <= stage <= 5:
                base = design[f"directory.index.s{stage}_base"]
                check(f"s{stage}_base", ~head.valid | (base == row_bases[head.partition]))
            if stage in (2, 3):
                mask = design[f"directory.index.s{stage}_mask"]
                check(f"s{stage}_mask", ~head.valid | (mask == row_masks[head.partition]))
            if stage in (4, 5):
                for table in range(2):
                    row = design[f"directory.index.s{stage}_row{table}"]
                    check(f"s{stage}_row{table}", ~head.valid | ((row & ~row_masks[head.partition]) == 0))
            if stage == 5:
                choice = data.View(shapes.where, design["directory.index.s5_choice"])
                check("s5_choice", ~head.valid | ((choice.row & ~row_masks[head.partition]) == 0))
            if stage >= 6:
                verdict = data.View(verdict_layout(shapes), design[f"directory.s{stage}_verdict"])
                slot, physical = verdict.slot, verdict.physical
                check(f"s{stage}_slot", ~head.valid | ((slot & ~slot_masks[head.partition]) == 0))
                check(f"s{stage}_physical", ~head.valid | (physical == (slot_bases[head.partition] | slot)))
                if stage == 7:
                    check("s7_address", design["directory.blocks.s7_slot"] == physical)
        front, popped = design["directory.free.front_partition"], design["directory.free.front_popped"]
        head = copy.head("s6_head")
        check("front", ~popped | (head.valid & (front == head.partition)))
        for port, partition in enumerate(config.partition_of_port):
            depth = len(design.rows("store.bank0"))
            first = depth * config.slot_bases[partition] // config.slots
            last = depth * (config.slot_bases[partition] + partitions[partition].slots) // config.slots
            turn = design["store.turn"]
            bank = (turn + port)[: len(turn)]
            banks = range(config.ports)
            for what, valid in (
                ("read", design[f"store.valid_at_bank_{port}"]),
                ("write", Array(design[f"store.bank_write_valid_{b}"] for b in banks)[bank]),
            ):
                row = Array(design[f"store.bank_{what}_row_{b}"] for b in banks)[bank]
                check(f"{what}_row_{port}", ~valid | ((row >= first) & (row < last)))
