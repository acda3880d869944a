"""What the proofs of blocks assume of their caller: the directory keeps it for its blocks, the node for its ports.

Used by: block_claims.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SESSION_KINDS, Kind, Status
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES, STATE_COMMIT_STAGE
from kvnode.rtl.layouts import Shapes, one_of
from kvnode.rtl.node.directory import Directory, head_layout, verdict_layout
from kvnode.rtl.node.node import Node
from kvnode.rtl.node.sessions import is_session_kind

from .proof import ProofOf

#: Kinds that must name a session, that must have a handle, and that must not name a session.
OF_SESSION = (Kind.SESSION_FENCE, Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE)
BY_HANDLE = (Kind.WRITE, Kind.LAND, Kind.PUT_END, Kind.PUT_REVOKE, Kind.RELEASE)
WITHOUT_SESSION = (Kind.SESSION_OPEN, Kind.WRITE, Kind.LAND, Kind.PUT_END, Kind.PUT_REVOKE)


def well_formed(config: NodeConfig, owner: Value, operation: data.View) -> Value:
    """What comes to the directory: of a port, what RequestCheck lets through (streams.Ports); or of the sweeper."""
    of_port = (
        (operation.kind < Kind.VISIT)
        & (~one_of(operation.kind, OF_SESSION) | operation.session[-1])
        & (~one_of(operation.kind, WITHOUT_SESSION) | ~operation.session[-1])
        & (~one_of(operation.kind, BY_HANDLE) | operation.by_handle)
        & (~operation.by_handle | (operation.kind != Kind.PUT_START))
    )
    swept = (operation.kind >= Kind.VISIT) & (operation.kind <= Kind.POISON)
    of_sweeper = swept & ~operation.by_handle
    return (owner <= config.ports) & Mux(owner == config.ports, of_sweeper, of_port)


class Callers(ProofOf):
    """The directory with its sessions, as the caller of the index, the tables, the free lists and the sessions.

    The contract of the node: operations of ports are well-formed, those of the sweeper have no session; a CLOSE comes
    without a number; `cargo` comes with its operation.
    """

    CUT = ("index", "fills", "leases", "settings", "trace_port", "beside")

    def describe(self, m: Module) -> None:
        config, shapes = self.config, Shapes(self.config)
        directory = Directory(config)
        design = self.design("directory", directory, self.CUT, ("start",), clash=True)
        m.d.comb += directory.start.eq(self.free("starts") & directory.ready)
        self.assume("partition", directory.partition < len(config.partitions))
        self.assume("operation", well_formed(config, directory.owner, directory.operation))

        stages = range(1, STATE_COMMIT_STAGE + 1)
        heads = {k: data.View(head_layout(shapes), design[f"s{k}_head"]) for k in stages}
        ops = {k: data.View(shapes.operation, design[f"s{k}_op"]) for k in stages}
        cargos = {k: data.View(shapes.cargo, design[f"s{k}_cargo"]) for k in (5, 6, 7, 8)}

        def numbered(k: int):
            return (ops[k].kind != Kind.SESSION_CLOSE) | (cargos[k].sequence == 0)

        self.assume("close", ~heads[5].valid | numbered(5))
        for k in stages:
            self.help(f"operation_{k}", ~heads[k].valid | well_formed(config, heads[k].owner, ops[k]))
            self.help(f"partition_{k}", heads[k].partition < len(config.partitions))
            self.help(f"empty_{k}", directory.ready | ~heads[k].valid)
            if k > 5:
                self.help(f"close_{k}", ~heads[k].valid | numbered(k))

        # The index and the tables.
        inserts, removes = design["insert"], design["remove"]
        verdict = ~design["index.s5_hit"] & design["index.s5_room"]
        self.check("index_insert", ~inserts | (heads[5].valid & verdict & ~removes))
        self.check("index_remove", ~removes | heads[5].valid)
        self.check("fills_room", ~design["take"] | design["fills.s5_room"])
        blocks, sessions = design.parts["blocks"].component, design.parts["sessions"].component
        self.check("blocks_clear", ~(blocks.clear & blocks.commit))
        self.check("free_pop", ~design["pop"] | (heads[5].valid & (design["free.s5_count"] != 0) & ~design["push"]))

        # The sessions.
        valid, kind, asks = sessions.valid, sessions.kind, sessions.asks
        subject = design["sessions.s8_subject"]
        before = Signal(len(kind) + len(sessions.partition))
        m.d.sync += [before[: len(kind)].eq(sessions.s7_kind), before[len(kind) :].eq(sessions.s7_partition)]
        self.check("sessions_stages", (kind == before[: len(kind)]) & (sessions.partition == before[len(kind) :]))
        self.check("sessions_clear", ~(sessions.clear & valid))
        self.check("sessions_asks", ~(valid & asks) | (subject[-1] & (sessions.owner < config.ports)))
        self.check("sessions_who_asks", ~valid | asks | ~(is_session_kind(kind) & (kind != Kind.SESSION_OPEN)))
        does_not = one_of(kind, (Kind.SESSION_OPEN, Kind.EXPIRE_SESSION))
        self.check("sessions_who_does_not", ~(valid & asks) | ~does_not)
        self.check("sessions_close", ~valid | (kind != Kind.SESSION_CLOSE) | (sessions.ask_sequence == 0))
        admitted = valid & sessions.alive & (sessions.refused == Status.OK) & ~one_of(kind, SESSION_KINDS)
        same = (kind == Kind.PUT_START) & (sessions.commit_sequence == sessions.ask_sequence)
        self.check("sessions_commits", ~sessions.commits | (admitted & (~asks | same)))
        self.cover("commits_end", sessions.commits & ~asks)
        self.cover("commits_found", sessions.commits & asks)
        key = data.View(blocks.key, design["s8_key"])
        granted = data.View(verdict_layout(shapes), design["s8_verdict"]).granted
        self.help("subject_named", ~heads[8].valid | ~ops[8].session[-1] | (subject == ops[8].session))
        self.help("subject_of_block", ops[8].session[-1] | granted | (subject == key.session))


class Turns(ProofOf):
    """The node around its ports, in `strict` sharing: what a port offers is taken in its turn, and in no other cycle;
    its result comes DIRECTORY_LATENCY_CYCLES later, and a beat of the store three cycles after it was asked for, unless
    the port is down then.
    """

    CUT = ("sweeper", "management") + tuple(
        f"directory.{name}" for name in (
            "index", "blocks", "fills", "leases", "sessions", "settings", "free", "coherence", "trace_port", "beside"
        )
    )  # fmt: skip

    def describe(self, m: Module) -> None:
        config, shapes, ports = self.config, Shapes(self.config), range(self.config.ports)
        of_ports = (f"{name}{port}" for port in ports for name in ("port", "store.bank"))
        design = self.design("node", Node(config), (*self.CUT, *of_ports))
        ready, turn, down = design["directory.ready"], design["wheel.turn"], design["management.ports_down"]
        stages = range(1, DIRECTORY_LATENCY_CYCLES)
        heads = {k: data.View(head_layout(shapes), design[f"directory.s{k}_head"]) for k in stages}
        ops = {k: design[f"directory.s{k}_op"] for k in stages}
        for number in ports:
            gets, gives = design.cut_inputs[f"port{number}"], design.cut_outputs[f"port{number}"]
            offers, taken = gives["valid"] & ~down[number], gets["taken"]
            self.check(f"taken_in_its_turn_{number}", ~(offers & (turn == number) & ready) | taken)
            self.check(f"taken_is_offered_{number}", ~taken | (offers & (turn == number) & ready))
            operation = data.View(shapes.operation, gives["operation"])
            for k in range(1, DIRECTORY_LATENCY_CYCLES + 1):
                before = taken, operation
                taken = Signal(name=f"taken_{number}_{k}")
                operation = Signal(shapes.operation, name=f"operation_{number}_{k}")
                m.d.sync += [now.eq(then) for now, then in zip((taken, operation), before, strict=True)]
                if k in heads:
                    here = heads[k].valid & (heads[k].owner == number)
                    self.help(f"at_stage_{k}_{number}", here == taken)
                    self.help(f"operation_at_stage_{k}_{number}", ~taken | (ops[k] == operation.as_value()))
            comes, result = gets["result_valid"], data.View(shapes.result, gets["result"])
            same = (result.kind == operation.kind) & (result.tag == operation.tag)
            self.check(f"result_{number}", comes == (taken & ~down[number]))
            self.check(f"result_of_its_operation_{number}", ~comes | same)
            asked = gives["read_valid"] & ~down[number]
            for name in ("valid_at_bank", "valid_read", "data_valid_"):
                before, asked = asked, Signal(name=f"{name}_before_{number}")
                m.d.sync += asked.eq(before)
                self.help(f"{name}_{number}", design[f"store.{name}_{number}"] == asked)
            self.check(f"beat_{number}", gets["data_valid"] == (asked & ~down[number]))
            self.cover(f"result_{number}", comes)
            self.cover(f"beat_{number}", gets["data_valid"])
