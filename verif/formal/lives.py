"""Slots in the directory: where a slot is, what its block is, its index entry, its fill row and its leases agree.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.timing import STATE_COMMIT_STAGE
from kvnode.rtl.layouts import Shapes, one_of
from kvnode.rtl.node.directory import Directory, head_layout, verdict_layout
from kvnode.rtl.node.index import entry_layout, event_layout
from kvnode.rtl.node.sweeper import Sweeper
from kvnode.rtl.wheel import Wheel

from .contracts import well_formed
from .design import Design
from .slots import GRANT_STAGE, Is, Places, stage_layout


class Lives(Places):
    """The directory and the sweeper as they are, with free messages, keys, sessions, leases and settings: where a slot
    is and what the block table says of it agree.

    The contract of the node: the directory takes an operation only when it is ready, the sweeper's or one of a port,
    which is well-formed. Sessions refuse only operations that name one.
    """

    #: What is left out may say anything in every cycle.
    CUT: tuple[str, ...] = ("index", "fills", "sessions", "leases", "settings", "trace_port", "beside")

    def describe(self, m: Module) -> None:
        config, shapes = self.config, Shapes(self.config)
        directory, sweeper, wheel = Directory(config), Sweeper(config), Wheel(config.ports)
        self.design("wheel", wheel)
        driven = ("next_turn", "taken", "push", "push_partition", "push_slot", "push_where")
        queues = self.design("sweeper", sweeper, driven=driven, clash=True)
        given = ("start", "owner", "partition", "operation")
        design = self.design("directory", directory, self.CUT, given, clash=True)
        free = design.parts["free"].component
        operation, owner = Signal(shapes.operation), self.free("owner", shapes.owner_bits)
        m.d.comb += [
            operation.eq(self.free("operation", shapes.operation.size)),
            sweeper.next_turn.eq(wheel.next_turn),
            sweeper.push.eq(directory.retire),
            sweeper.push_partition.eq(directory.retire_partition),
            sweeper.push_slot.eq(directory.retire_slot),
            sweeper.push_where.eq(directory.retire_where),
            sweeper.taken.eq(self.free("sweeps") & directory.ready & sweeper.valid),
            directory.start.eq(sweeper.taken | (self.free("starts") & directory.ready)),
            directory.operation.eq(Mux(sweeper.taken, sweeper.operation.as_value(), operation.as_value())),
            directory.owner.eq(Mux(sweeper.taken, config.ports, owner)),
            directory.partition.eq(
                Mux(sweeper.taken, sweeper.partition, self.free("partition", shapes.partition_bits))
            ),
        ]
        self.assume("partition", directory.partition < len(config.partitions))
        self.assume("operation", (owner != config.ports) & well_formed(config, owner, operation))
        # That is shown of the sessions.
        self.assume("refused", design["asks"] | (design["sessions.refused"] == Status.OK))

        heads = {k: data.View(head_layout(shapes), design[f"s{k}_head"]) for k in range(1, STATE_COMMIT_STAGE + 1)}
        ops = {k: data.View(shapes.operation, design[f"s{k}_op"]) for k in heads}
        stages = []
        for k in range(1, GRANT_STAGE + 1):
            stage = Signal(stage_layout(shapes), name=f"stage_{k}")
            m.d.comb += [
                stage.reap.eq(heads[k].valid & (ops[k].kind == Kind.REAP)),
                stage.partition.eq(heads[k].partition),
                stage.slot.eq(ops[k].slot),
            ]
            stages.append(stage)
        self.of_slots(m, free, sweeper, stages)
        self.of_list(m, free, design, "free.")
        self.of_queue(m, sweeper, queues)
        self._of_blocks(m, directory, design, heads, ops)
        self.of_entries(m, sweeper, queues, directory, design, heads, ops)

    def of_entries(self, m: Module, sweeper: Sweeper, queues: Design, directory: Directory, design: Design,
                   heads: dict, ops: dict) -> None:  # fmt: skip
        """What holds of the index, if it is not left out."""

    def _of_blocks(self, m: Module, directory: Directory, design: Design, heads: dict, ops: dict) -> None:
        config, shapes = self.config, Shapes(self.config)
        blocks = design.parts["blocks"].component
        walk, clearing = design["walk"], ~directory.ready
        late = range(GRANT_STAGE + 1, STATE_COMMIT_STAGE + 1)
        verdicts = {k: data.View(verdict_layout(shapes), design[f"s{k}_verdict"]) for k in late}
        bases = Array(config.slot_bases)
        for k, head in heads.items():
            self.help(f"empty_{k}", ~clearing | ~head.valid)
            self.help(f"operation_{k}", ~head.valid | well_formed(config, head.owner, ops[k]))
            self.help(f"of_partition_{k}", head.partition < len(config.partitions))
        for k, verdict in verdicts.items():
            in_partition = (verdict.slot < self.sizes[heads[k].partition]) & (
                verdict.physical == (bases[heads[k].partition] | verdict.slot)
            )
            self.help(f"slot_{k}", ~heads[k].valid | in_partition)
            grants = (ops[k].kind == Kind.PUT_START) & verdict.room
            self.help(f"grants_{k}", ~(heads[k].valid & verdict.granted) | grants)
        self.help("s7_slot", ~heads[7].valid | (design["blocks.s7_slot"] == verdicts[7].physical))

        state8 = data.View(blocks.state, design["s8_state"])
        previous = data.View(blocks.state, design["blocks.previous_state"])
        read = data.View(blocks.state, design["blocks.states.ram.read_data"])
        retires = self.state_of(directory.retire_partition, directory.retire_slot) == Is.USED
        self.check("retires", ~directory.retire | retires)
        lives = one_of(state8.state, (State.FILLING, State.SEALED))
        here = heads[8].valid & ~verdicts[8].granted & lives
        self.check("lives_in_use", ~here | (self.state_of(heads[8].partition, verdicts[8].slot) == Is.USED))
        self.check("granted_was_free", ~(heads[8].valid & verdicts[8].granted) | (state8.state == State.FREE))
        # From the cycle after the result on, a transfer holds the slot.
        partition9, by_handle9 = Signal(shapes.partition_bits), Signal()
        m.d.sync += [partition9.eq(heads[8].partition), by_handle9.eq(ops[8].by_handle)]
        result = directory.result
        moves = directory.result_valid & one_of(result.kind, (Kind.READ, Kind.WRITE)) & (result.status == Status.OK)
        reached = by_handle9 if "index" in self.CUT else 1
        self.check("moves_in_use", ~(moves & reached) | (self.state_of(partition9, result.slot) == Is.USED))
        for p, group in enumerate(self.states):
            for s, place in enumerate(group):
                number = config.slot_bases[p] + s
                row = data.View(blocks.state, design.rows("blocks.states")[number])
                at = {k: heads[k].valid & (verdicts[k].physical == number) for k in late}
                grants = Cat(at[k] & verdicts[k].granted for k in late)
                reaps = Cat(at[k] & (ops[k].kind == Kind.REAP) for k in late)
                name = f"{p}_{s}"
                self.help(f"cleared_{name}", ~clearing | ((place == Is.FREE) & ((walk <= number) | (row.state == 0))))
                # A slot may be granted again while it is being given back, behind that.
                once = Cat((grants & (grants - 1)) == 0, (reaps & (reaps - 1)) == 0).all()
                behind = ~grants.any() | ~reaps.any() | (grants < reaps)
                self.help(f"once_{name}", once & behind)
                before = Mux(reaps.any(), State.RETIRING, State.FREE)
                with_block = ~reaps.any() & one_of(row.state, (State.FILLING, State.SEALED))
                kept = ~grants.any() & ~reaps.any() & (row.state == State.RETIRING)
                agrees = Signal(name=f"agrees_{name}")
                with m.Switch(place):
                    with m.Case(Is.FREE):
                        m.d.comb += agrees.eq(~grants.any() & (row.state == before))
                    with m.Case(Is.USED):
                        m.d.comb += agrees.eq(Mux(grants.any(), row.state == before, with_block))
                    with m.Default():
                        m.d.comb += agrees.eq(kept)
                self.check(f"agrees_with_{name}", clearing | agrees)
                # Operations see the row with all commits.
                self.help(f"state_{name}", ~at[8] | (state8.state == row.state))
                own = design["blocks.previous"] & (design["blocks.previous_slot"] == number)
                self.help(f"coming_{name}", ~at[7] | (Mux(own, previous.state, read.state) == row.state))
                self.cover(f"again_{name}", grants.any() & reaps.any())


class Entries(Lives):
    """The same with the index as it is: it has an entry for each slot that is not free, where the slot's key row says,
    and no other; so what is found by key has a block, and what is reaped leaves the index.
    """

    CUT = tuple(name for name in Lives.CUT if name != "index")

    def of_entries(self, m: Module, sweeper: Sweeper, queues: Design, directory: Directory, design: Design,
                   heads: dict, ops: dict) -> None:  # fmt: skip
        config, shapes, index = self.config, Shapes(self.config), design.parts["index"].component
        tables, ways, rows = range(2), range(config.ways), range(config.index_rows)
        memories = {(t, w): design.rows(f"index.table{t}_way{w}") for t in tables for w in ways}
        clearing, walk = ~directory.ready, design["walk"]
        bases = Array(base // config.ways for base in config.slot_bases)
        masks = Array(Const((1 << log2) - 1, shapes.row_bits) for log2 in config.rows_log2)

        def word(t: int, w: int, row) -> data.View:
            found = memories[t, w][row] if isinstance(row, int) else Array(memories[t, w])[row]
            return data.View(entry_layout(shapes), found)

        # Where each slot's entry was put.
        wheres = [
            [Signal(shapes.where, name=f"where_{p}_{s}") for s in range(len(g))] for p, g in enumerate(self.states)
        ]
        for p, group in enumerate(wheres):
            for s, where in enumerate(group):
                with m.If(index.insert & (heads[5].partition == p) & (index.insert_slot == s)):
                    m.d.sync += where.eq(index.s5_choice)

        def where_of(partition: Value, slot: Value) -> Value:
            most = 1 << shapes.slot_bits
            padded = [Array([*(w.as_value() for w in g), *[Const(0)] * (most - len(g))])[slot] for g in wheres]
            return Array(padded)[partition]

        # An entry for each, and each for one.
        for p, group in enumerate(self.states):
            first = config.slot_bases[p] // config.ways
            inside = range(first, first + (1 << config.rows_log2[p]))
            for s, place in enumerate(group):
                where = wheres[p][s]
                row = first | where.row
                at = [word(t, w, row) for t in tables for w in ways]
                chosen = Array([e.valid & (e.slot == s) for e in at])[Cat(where.way, where.table)]
                self.check(f"entry_of_{p}_{s}", (place == Is.FREE) | ((where.row < len(inside)) & chosen))
            places = [(t, w, row) for t in tables for w in ways for row in inside]
            for t, w, row in places:
                entry = word(t, w, row)
                whose = where_of(Const(p, shapes.partition_bits), entry.slot)
                here = whose == Cat(Const(t, 1), Const(row - first, shapes.row_bits), Const(w, shapes.way_bits))
                taken = (entry.slot < len(group)) & (Array(group)[entry.slot[: config.partitions[p].slots_log2]] != 0)
                self.check(f"slot_of_{t}_{w}_{row}", ~entry.valid | (clearing & (walk <= row)) | (taken & here))
                self.help(f"emptied_{t}_{w}_{row}", ~clearing | (walk <= row) | ~entry.valid)
            for number, (t, w, row) in enumerate(places):
                for u, v, other in places[:number]:
                    one, two = word(t, w, row), word(u, v, other)
                    spread = (one.tag ^ one.tag[11:]) & masks[p]
                    pair = (row == other) if t == u else ((row - first) ^ spread) == other - first
                    twice = one.valid & two.valid & (one.tag == two.tag) & pair
                    self.help(f"one_entry_{t}_{w}_{row}_{u}_{v}_{other}", clearing | ~twice)

        # Operations and their rows.
        for k in range(2, 6):
            head = heads[k]
            self.help(f"index_base_{k}", ~head.valid | (design[f"index.s{k}_base"] == bases[head.partition]))
            if k in (2, 3):
                self.help(f"index_mask_{k}", ~head.valid | (design[f"index.s{k}_mask"] == masks[head.partition]))
                continue
            one, two = (design[f"index.s{k}_row{t}"] for t in tables)
            tag, mask = design[f"index.s{k}_tag"], masks[head.partition]
            self.help(f"index_rows_{k}", ~head.valid | (two == (one ^ tag ^ tag[11:]) & mask))
            self.help(f"index_row_{k}", ~head.valid | ((one & ~mask) == 0))
        choice = index.s5_choice
        self.help("choice_row", ~heads[5].valid | (choice.row == Mux(choice.table, design["index.s5_row1"],
                                                                     design["index.s5_row0"])))  # fmt: skip

        # The verdict at stage 5 is that of the entries there are now.
        previous = data.View(event_layout(shapes), design["index.previous"])
        self.help("previous_address", ~previous.valid | (previous.address < len(rows)))
        hits: list[tuple[Value, Value]] = []
        for t in tables:
            address4, address5 = (design[f"index.s{k}_base"] | design[f"index.s{k}_row{t}"] for k in (4, 5))
            for w in ways:
                touched = previous.valid & (previous.table == t) & (previous.way == w)
                read = design[f"index.table{t}_way{w}.ram.read_data"]
                same = touched & (previous.address == address4)
                self.help(f"entry_read_{t}_{w}", ~heads[4].valid | same | (read == word(t, w, address4).as_value()))
                left = word(t, w, previous.address)
                tag_and_slot = Cat(left.tag, left.slot) == Cat(previous.tag, previous.slot)
                self.help(f"previous_{t}_{w}", ~touched | ((left.valid == previous.set) & (~left.valid | tag_and_slot)))
                entry = word(t, w, address5)
                hits.append((entry.valid & (entry.tag == design["index.s5_tag"]), entry.slot))
                takes = heads[5].valid & index.s5_room & (choice.table == t) & (choice.way == w)
                self.help(f"free_{t}_{w}", ~takes | ~word(t, w, design["index.s5_base"] | choice.row).valid)
        hit = Cat(there for there, _ in hits).any()
        slot = Const(0)
        for there, its_slot in hits:
            slot = slot | Mux(there, its_slot, 0)
        self.check("hit", ~heads[5].valid | (index.s5_hit == hit))
        self.check("hit_slot", ~(heads[5].valid & index.s5_hit) | (index.s5_slot == slot))
        found = self.state_of(heads[5].partition, index.s5_slot) != Is.FREE
        found_there = found & (index.s5_slot < self.sizes[heads[5].partition])
        self.check("found_is_not_free", ~(heads[5].valid & index.s5_hit) | found_there)

        # The place goes with the slot: to the key row, to the queue, and to the operation that reaps.
        blocks = design.parts["blocks"].component
        verdicts = {k: data.View(verdict_layout(shapes), design[f"s{k}_verdict"]) for k in (6, 7, 8)}
        self.help("match_is_reached", ~design["s8_match"] | verdicts[8].reached)
        key8 = data.View(blocks.key, design["s8_key"])
        key7 = data.View(blocks.key, design["blocks.keys.ram.read_data"])
        for k in range(1, GRANT_STAGE + 1):
            reaps = heads[k].valid & (ops[k].kind == Kind.REAP)
            place = ops[k].where.as_value()
            self.help(f"reaps_where_{k}", ~reaps | (place == where_of(heads[k].partition, ops[k].slot)))
        for p, base in enumerate(config.slot_bases):
            size, log2 = config.partitions[p].slots, config.partitions[p].slots_log2
            head, tail = queues[f"queues.head_{p}"], queues[f"queues.tail_{p}"]
            length = Signal(log2 + 1, name=f"waiting_{p}")
            m.d.comb += length.eq(tail - head)
            for q, item in enumerate(queues.rows("queues.ram")[base : base + size]):
                queued = (Const(q, log2) - head[:log2])[:log2] < length
                its = where_of(Const(p, shapes.partition_bits), item[: shapes.slot_bits])
                self.help(f"queued_where_{p}_{q}", ~queued | (item[shapes.slot_bits :] == its))
            for s, place in enumerate(self.states[p]):
                number, where = base + s, wheres[p][s].as_value()
                row = data.View(blocks.key, design.rows("blocks.keys")[number])
                state = data.View(blocks.state, design.rows("blocks.states")[number]).state
                stage_at = {k: heads[k].valid & (verdicts[k].physical == number) for k in verdicts}
                grants = {k: stage_at[k] & verdicts[k].granted for k in stage_at}
                leave = {k: stage_at[k] & (ops[k].kind == Kind.REAP) for k in stage_at}
                name = f"{p}_{s}"
                for k in grants:
                    self.help(f"granted_where_{k}_{name}", ~grants[k] | (verdicts[k].where.as_value() == where))
                kept = (place == Is.FREE) | grants[6]
                self.help(f"key_where_{name}", kept | (row.where.as_value() == where))
                self.help(f"s7_where_{name}", ~stage_at[7] | grants[7] | (key7.where == row.where))
                self.help(f"s8_where_{name}", ~stage_at[8] | grants[7] | (key8.where == row.where))
                # What was found by key is met before anything is given back.
                for k in stage_at:
                    finds = stage_at[k] & verdicts[k].reached & ~ops[k].by_handle & ~verdicts[k].granted
                    finds = finds & (ops[k].kind < Kind.VISIT)
                    granted = Cat(grants[j] for j in stage_at if j > k).any()
                    reaped = Cat(leave[j] for j in stage_at if j > k).any()
                    self.help(f"found_{k}_{name}", ~finds | granted | (~reaped & (state != State.FREE)))
                meets = stage_at[8] & verdicts[8].reached & ~verdicts[8].granted & (ops[8].kind < Kind.VISIT)
                met = data.View(blocks.state, design["s8_state"]).state
                self.check(f"meets_{name}", ~meets | ops[8].by_handle | (met != State.FREE))


class FillRows(Lives):
    """The same with the fill table as it is: a block that is being written has a fill row, it alone, from its grant to
    its last operation; no other row is taken.
    """

    CUT = tuple(name for name in Lives.CUT if name != "fills")

    def of_entries(self, m: Module, sweeper: Sweeper, queues: Design, directory: Directory, design: Design,
                   heads: dict, ops: dict) -> None:  # fmt: skip
        config, shapes = self.config, Shapes(self.config)
        blocks, fills = design.parts["blocks"].component, design.parts["fills"].component
        verdicts = {k: data.View(verdict_layout(shapes), design[f"s{k}_verdict"]) for k in (6, 7, 8)}
        state8 = data.View(blocks.state, design["s8_state"])
        previous = data.View(blocks.state, design["blocks.previous_state"])
        read = data.View(blocks.state, design["blocks.states.ram.read_data"])
        row8 = design["s8_fill_row"]
        own_row = Mux(verdicts[8].granted, verdicts[8].fill_row, state8.fill_row)
        self.help("s8_fill_row", ~heads[8].valid | (row8 == own_row))
        meets = heads[8].valid & ~verdicts[8].granted & (state8.state == State.FILLING)
        takens = [design[f"fills.taken_{p}"] for p in range(len(config.partitions))]
        self.check("row_is_taken", ~meets | Array(takens)[heads[8].partition].bit_select(row8, 1))
        releases = fills.release & Array(takens)[fills.s8_partition].bit_select(fills.s8_row, 1)
        self.check("releases_taken", ~fills.release | releases)
        for p, base in enumerate(config.slot_bases):
            holds: list[Signal] = []
            for s, place in enumerate(self.states[p]):
                number, name = base + s, f"{p}_{s}"
                row = data.View(blocks.state, design.rows("blocks.states")[number])
                at = {k: heads[k].valid & (verdicts[k].physical == number) for k in verdicts}
                granted = [(at[k] & verdicts[k].granted, verdicts[k].fill_row) for k in at]
                fill_row = row.fill_row
                for grants, taken in granted:
                    fill_row = Mux(grants, taken, fill_row)
                hold = Signal(1 + shapes.fill_row_bits, name=f"fill_of_{name}")
                writes = Cat(grants for grants, _ in granted).any() | (row.state == State.FILLING)
                m.d.comb += hold.eq(Cat((place == Is.USED) & writes & directory.ready, fill_row))
                holds.append(hold)
                self.help(f"in_range_{name}", ~hold[0] | (hold[1:] < config.fill_rows))
                self.help(f"row_{name}", ~at[8] | (state8.fill_row == row.fill_row))
                own = design["blocks.previous"] & (design["blocks.previous_slot"] == number)
                coming = Mux(own, previous.fill_row, read.fill_row)
                self.help(f"coming_row_{name}", ~at[7] | (coming == row.fill_row))
                for other in range(s):
                    shared = holds[other][0] & hold[0] & (holds[other][1:] == hold[1:])
                    self.check(f"own_row_{p}_{other}_{s}", ~shared)
            for r in range(config.fill_rows):
                holder = Cat(hold[0] & (hold[1:] == r) for hold in holds).any()
                self.check(f"row_has_a_block_{p}_{r}", takens[p][r] == holder)
            self.cover(f"all_rows_{p}", takens[p].all())


class Leased(Lives):
    """The same with the lease table as it is: a block knows how many leases hold it, so it is not given up while one
    does; a block that is not sealed has none.
    """

    CUT = tuple(name for name in Lives.CUT if name != "leases")

    def of_entries(self, m: Module, sweeper: Sweeper, queues: Design, directory: Directory, design: Design,
                   heads: dict, ops: dict) -> None:  # fmt: skip
        config, shapes = self.config, Shapes(self.config)
        blocks, leases = design.parts["blocks"].component, design.parts["leases"].component
        words = [data.View(leases.row, word) for word in design.rows("leases.rows.ram")]
        row_bits, row8 = shapes.lease_row_bits, design["leases.s8_row"]
        read = Mux(design["leases.rows.forward"], design["leases.rows.forwarded"],
                   design["leases.rows.ram.ram.read_data"])  # fmt: skip
        taken = [design[f"leases.taken_{p}"] for p in range(len(config.partitions))]
        place8 = Cat(row8, heads[8].partition)
        known = Array(taken)[heads[8].partition].bit_select(row8, 1)
        now = Array(word.as_value() for word in words)[place8]
        self.help("lease_row", ~(heads[8].valid & known) | (read == now))
        physical = {k: data.View(verdict_layout(shapes), design[f"s{k}_verdict"]).physical for k in (7, 8)}
        state8 = data.View(blocks.state, design["s8_state"])
        previous = data.View(blocks.state, design["blocks.previous_state"])
        state7 = data.View(blocks.state, design["blocks.states.ram.read_data"])
        own_lease = known & (leases.slot == data.View(leases.row, read).slot)
        self.check("ends_its_own", ~leases.end | own_lease)
        retires = directory.retire & (state8.state == State.SEALED)
        self.check("retires_without", ~retires | (state8.leases == 0))
        for p, base in enumerate(config.slot_bases):
            for s, place in enumerate(self.states[p]):
                name = f"{p}_{s}"
                row = data.View(blocks.state, design.rows("blocks.states")[base + s])
                held = [taken[p][r] & (words[p << row_bits | r].slot == s) for r in range(config.leases)]
                count = sum(held)
                sealed = (row.state == State.SEALED) & directory.ready
                self.check(f"leases_{name}", Mux(sealed, row.leases, 0) == count)
                self.check(f"in_use_{name}", (count == 0) | (place == Is.USED))
                at7, at8 = (heads[k].valid & (physical[k] == base + s) for k in (7, 8))
                self.help(f"leases_8_{name}", ~at8 | (state8.leases == row.leases))
                own = design["blocks.previous"] & (design["blocks.previous_slot"] == base + s)
                self.help(f"leases_7_{name}", ~at7 | (Mux(own, previous.leases, state7.leases) == row.leases))
                self.help(f"none_yet_{name}", ~directory.ready | (row.state != State.FILLING) | (row.leases == 0))
            self.cover(f"all_leases_{p}", taken[p].all())
