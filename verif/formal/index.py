"""The index: a key that was inserted is found by every later operation until it is removed, with its slot, and no
other is.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.rtl.node.index import Index, entry_layout, event_layout

from .proof import ProofOf

#: Stages from the entry of an operation to its verdict.
ENTRY, VERDICT = 1, 5


class Found(ProofOf):
    """For one key, which is any pair of rows of any partition with any tag.

    The contract of the caller: operations enter when the tables have been cleared; each comes with the base and the
    mask of its partition; the operation at stage 5 inserts only if its verdict is that there is room and no entry yet;
    it does not insert and remove at once. What it removes is any place. Keys are told apart by rows and tag, which is
    all that the index knows of them.
    """

    def describe(self, m: Module) -> None:
        config, index = self.config, Index(self.config)
        driven = ("s1_base", "s1_mask", "clear", "clear_row", "remove_base")
        design = self.design("index", index, driven=driven, clash=True)
        tables, ways = range(2), range(config.ways)
        bases = Array(base // config.ways for base in config.slot_bases)
        masks = Array(Const((1 << log2) - 1, len(index.s1_mask)) for log2 in config.rows_log2)

        # The walk after reset, and the partition of the operation at each stage. Then: is there an operation at all?
        walk = Signal(range(config.index_rows + 1))
        clearing = walk != config.index_rows
        m.d.comb += [index.clear.eq(clearing), index.clear_row.eq(walk)]
        m.d.sync += walk.eq(walk + clearing)
        partitions = {1: self.free("partition", (len(config.partitions) - 1).bit_length())}
        valids = {1: self.free("valid")}
        self.assume("entry", (partitions[1] < len(config.partitions)) & ~(valids[1] & clearing))
        for stage in range(ENTRY + 1, VERDICT + 1):
            partitions[stage] = Signal(len(partitions[1]), name=f"partition_{stage}")
            valids[stage] = Signal(name=f"valid_{stage}")
            m.d.sync += [partitions[stage].eq(partitions[stage - 1]), valids[stage].eq(valids[stage - 1])]
        m.d.comb += [
            index.s1_base.eq(bases[partitions[1]]),
            index.s1_mask.eq(masks[partitions[1]]),
            index.remove_base.eq(bases[partitions[5]]),
        ]

        # The key.
        partition = self.chosen("key_partition", len(partitions[1]))
        row, tag = self.chosen("key_row", len(index.s1_mask)), self.chosen("key_tag", config.tag_bits)
        second = (row ^ tag ^ tag[11:]) & masks[partition]
        addresses = [Signal(index.address_bits, name=f"key_address_{t}") for t in tables]
        m.d.comb += [addresses[0].eq(bases[partition] | row), addresses[1].eq(bases[partition] | second)]
        self.assume("key", (partition < len(config.partitions)) & ((row & ~masks[partition]) == 0))

        def rows(stage: int) -> list[Value]:
            return [design[f"s{stage}_base"] | design[f"s{stage}_row{t}"] for t in tables]

        def has_key(stage: int) -> Value:
            at = [address == key for address, key in zip(rows(stage), addresses)]
            return at[0] & at[1] & (design[f"s{stage}_tag"] == tag)

        # What the caller does at stage 5, and what becomes of the key.
        asks = valids[5] & has_key(5)
        self.assume("insert", ~index.insert | (valids[5] & ~index.s5_hit & index.s5_room & ~index.remove))
        removed_row = index.remove_where.row
        self.assume("remove", ~index.remove | (valids[5] & ((removed_row & ~masks[partitions[5]]) == 0)))
        place = data.StructLayout({"table": 1, "address": index.address_bits, "way": len(index.s5_choice.way)})
        chosen, removed = Signal(place), Signal(place)
        m.d.comb += [
            chosen.eq(Cat(index.s5_choice.table, design["s5_base"] | index.s5_choice.row, index.s5_choice.way)),
            removed.eq(Cat(index.remove_where.table, index.remove_base | removed_row, index.remove_where.way)),
        ]
        inside, where, slot = Signal(), Signal(place), Signal(len(index.s5_slot))
        with m.If(index.insert & asks):
            m.d.sync += [inside.eq(1), where.eq(chosen), slot.eq(index.insert_slot)]
        with m.If(index.remove & inside & (removed == where)):
            m.d.sync += inside.eq(0)
        self.check("found", ~asks | (index.s5_hit == inside))
        self.check("its_slot", ~(asks & index.s5_hit) | (index.s5_slot == slot))
        self.cover("found", asks & index.s5_hit & (index.s5_slot == 2))
        gone = Signal()
        m.d.sync += gone.eq(gone | (index.remove & inside & (removed == where)))
        self.cover("gone", asks & ~index.s5_hit & gone)
        self.cover("again", asks & index.s5_hit & gone)

        # Helpers: what is in the rows of the key.
        self.help("empty", ~clearing | ~inside)
        stages = [valids[stage] for stage in range(2, VERDICT + 1)]
        self.help("no_operation", ~clearing | ~Cat(*stages).any())
        words = {
            (t, w): data.View(entry_layout(index.shapes), Array(design.rows(f"table{t}_way{w}"))[a])
            for t, a in zip(tables, addresses)
            for w in ways
        }
        cleared = ~clearing | (addresses[0] < walk), ~clearing | (addresses[1] < walk)
        for (t, w), word in words.items():
            here = inside & (where.table == t) & (where.way == w)
            is_key = word.valid & (word.tag == tag)
            self.help(f"entry_{t}_{w}", ~cleared[t] | ((is_key == here) & (~here | (word.slot == slot))))
            self.help(f"cleared_{t}_{w}", ~(clearing & cleared[t]) | ~word.valid)
        self.help("where", ~inside | (where.address == Array(addresses)[where.table]))
        self.help("walk", walk <= config.index_rows)

        # Helpers: operations know their partition, and their rows belong together.
        for stage in range(2, VERDICT + 1):
            at, empty = partitions[stage], ~valids[stage]
            self.help(f"partition_{stage}", at < len(config.partitions))
            self.help(f"base_{stage}", empty | (design[f"s{stage}_base"] == bases[at]))
            if stage in (2, 3):
                self.help(f"mask_{stage}", empty | (design[f"s{stage}_mask"] == masks[at]))
            if stage in (4, 5):
                first, other = (design[f"s{stage}_row{t}"] for t in tables)
                own_tag = design[f"s{stage}_tag"]
                self.help(f"rows_{stage}", empty | (other == (first ^ own_tag ^ own_tag[11:]) & masks[at]))
                self.help(f"row_{stage}", empty | ((first & ~masks[at]) == 0))
        self.help("choice_row", ~valids[5] | ((index.s5_choice.row & ~masks[partitions[5]]) == 0))
        choice_row = Mux(index.s5_choice.table, design["s5_row1"], design["s5_row0"])
        self.help("choice_of_rows", ~valids[5] | (index.s5_choice.row == choice_row))

        # Helpers: what was read for stage 4, of rows that are the key's; commits since are beside it.
        previous = data.View(event_layout(index.shapes), design["previous"])
        for (t, w), word in words.items():
            read = data.View(entry_layout(index.shapes), design[f"table{t}_way{w}.ram.read_data"])
            touched = previous.valid & (previous.table == t) & (previous.way == w)
            here = touched & (previous.address == addresses[t])
            reads = valids[4] & (rows(4)[t] == addresses[t])
            self.help(f"read_{t}_{w}", ~reads | here | (read.as_value() == word.as_value()))
            same_entry = Cat(word.tag, word.slot) == Cat(previous.tag, previous.slot)
            same = (word.valid == previous.set) & (~word.valid | same_entry)
            self.help(f"previous_{t}_{w}", ~here | same)
            # A place that is chosen is free.
            takes = valids[5] & index.s5_room & (chosen.table == t) & (chosen.way == w)
            self.help(f"free_{t}_{w}", ~(takes & (chosen.address == addresses[t])) | ~word.valid)
