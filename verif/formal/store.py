"""The wheel and the store: no bank has two owners, and what was written to a place is what is read there.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value

from kvnode.rtl.layouts import index_bits
from kvnode.rtl.node.store import Store
from kvnode.rtl.wheel import Wheel

from .proof import ProofOf


class Banks(ProofOf):
    """In no cycle do two ports own a bank, and every port owns every bank once in a lap."""

    def describe(self, m: Module) -> None:
        ports = self.config.ports
        wheel = Wheel(ports)
        self.design("wheel", wheel)
        banks = [Signal(index_bits(ports), name=f"bank_of_{port}") for port in range(ports)]
        m.d.comb += [bank.eq(wheel.rotation + port) for port, bank in enumerate(banks)]
        for one in range(ports):
            for two in range(one):
                self.check(f"banks_{two}_{one}", banks[one] != banks[two])
        before = [Signal.like(bank, name=f"before_{port}") for port, bank in enumerate(banks)]
        first = self.first()
        for port in range(ports):
            m.d.sync += before[port].eq(banks[port])
            step = (before[port] + 1)[: len(before[port])]
            self.check(f"next_{port}", first | (banks[port] == step))
        self.check("turn", wheel.turn <= ports)
        turn = Signal.like(wheel.turn)
        m.d.sync += turn.eq(wheel.turn)
        self.check("turns", first | (wheel.turn == Array([*range(1, ports + 1), 0])[turn]))
        self.cover("lap", (wheel.turn == ports) & (wheel.rotation == ports - 1))


class Bytes(ProofOf):
    """A read gets the word that was last written to its place, whoever wrote it and whoever reads.

    The place is any row of any bank. Ports ask, in every cycle, for what they like in the bank that they own; a read of
    a place that is written in the same cycle has no claim to a word (nor has the memory), one a cycle later has.
    """

    def describe(self, m: Module) -> None:
        ports = range(self.config.ports)
        store = Store(self.config)
        wheel = Wheel(self.config.ports)
        self.design("wheel", wheel)
        design = self.design("store", store, driven=("rotation",), clash=True)
        m.d.comb += store.rotation.eq(wheel.rotation)
        row, bank = self.chosen("row", len(store.read_row[0])), self.chosen("bank", len(store.rotation))
        self.assume("place", row < store.rows)

        def is_there(turn, port):
            return (turn + port)[: len(bank)] == bank

        here = [is_there(wheel.rotation, port) for port in ports]
        known, word = Signal(), Signal(len(store.write_data[0]))
        written = [here[p] & store.write_valid[p] & (store.write_row[p] == row) for p in ports]
        for port in ports:
            with m.If(written[port]):
                m.d.sync += [known.eq(1), word.eq(store.write_data[port])]

        # What each port has asked for one, two and three cycles ago, and the word that it is to get.
        asked = [[Signal(name=f"asked_{cycles}_{port}") for port in ports] for cycles in (1, 2, 3)]
        asking = [Signal(3, name=f"asking_{port}") for port in ports]
        wanted = [Signal.like(word, name=f"wanted_{cycles}") for cycles in (1, 2, 3)]
        m.d.sync += [later.eq(earlier) for earlier, later in zip([word, *wanted], wanted)]
        for port in ports:
            asks = known & here[port] & store.read_valid[port] & (store.read_row[port] == row) & ~written[port]
            m.d.sync += asked[0][port].eq(asks)
            m.d.sync += [asked[i + 1][port].eq(asked[i][port]) for i in range(2)]
            gets = store.data_valid[port] & (store.read_data[port] == wanted[2])
            self.check(f"word_{port}", ~asked[2][port] | gets)
            self.cover(f"read_{port}", asked[2][port] & (wanted[2] == 0xA5))
            valid = [design[f"{name}_{port}"] for name in ("valid_at_bank", "valid_read")]
            m.d.sync += asking[port].eq(Cat(store.read_valid[port], asking[port][:2]))
            self.check(f"answered_{port}", Cat(*valid, store.data_valid[port]) == asking[port])
            # Nobody sees the word of a read that is not his.
            self.check(f"nothing_{port}", store.data_valid[port] | (store.read_data[port] == 0))

        # What lies between, for the induction.
        turns = design["turn"], design["bank_turn"]
        before = [Signal(len(bank), name=f"rotation_{cycles}") for cycles in (1, 2)]
        m.d.sync += [before[0].eq(wheel.rotation), before[1].eq(before[0])]
        self.help("turned", Cat(*turns) == Cat(*before))

        def of_bank(name: str) -> Value:
            return Array(design[f"{name}_{b}"] for b in ports)[bank]

        read = Array(design[f"bank{b}.ram.read_data"] for b in ports)[bank]
        inside = Array(Array(design.rows(f"bank{b}"))[row] for b in ports)[bank]
        coming = of_bank("bank_write_valid") & (of_bank("bank_write_row") == row)
        self.help("inside", ~known | (Mux(coming, of_bank("bank_write_data"), inside) == word))
        for port in ports:
            at_bank = is_there(turns[0], port) & (of_bank("bank_read_row") == row) & ~coming & (wanted[0] == word)
            self.help(f"at_bank_{port}", ~asked[0][port] | (known & at_bank & asking[port][0]))
            arrives = is_there(turns[1], port) & (read == wanted[1])
            self.help(f"arrives_{port}", ~asked[1][port] | (arrives & asking[port][1]))
            self.help(f"arrived_{port}", ~asked[2][port] | asking[port][2])
