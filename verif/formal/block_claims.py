"""What is proved of the blocks. Nothing of the RTL is imported before a proof is made: faults are seeded first."""

import functools

from kvnode.models.spec.config import PartitionConfig

from .faults import Fault
from .proof import Proof
from .suite import Method, Property, proof_of

#: Four ports in one partition, so that they share all banks.
SHARED = (PartitionConfig(ports=(0, 1, 2, 3), slots_log2=1, low_watermark_slots=1, seed=0),)
#: The smallest partitions in which a list is more than its head: four slots and two.
FEW_SLOTS = (
    PartitionConfig(ports=(1,), slots_log2=2, low_watermark_slots=1, seed=0),
    PartitionConfig(ports=(0,), slots_log2=1, low_watermark_slots=1, seed=0),
)

EARLY_CREDIT = Fault(
    "a credit comes back when a beat is offered",
    "kvnode.rtl.node.responder",
    "credits.eq(credits - self.issue + (beats.o.valid & beats.o.ready)),",
    "credits.eq(credits - self.issue + beats.o.valid),",
)
UNSEEN_COMMIT = Fault(
    "the commit two operations in front is not seen",
    "kvnode.rtl.node.index",
    "                for commit in (previous, event):\n",
    "                for commit in (event,):\n",
)


def _forwarded() -> Proof:
    from .tables import Forwarded

    return Forwarded(width=4, depth=6)


def _fifo(depth: int) -> Proof:
    from .streams import Fifo

    return Fifo(depth)


PROPERTIES = [
    Property(
        name="wheel/banks",
        claim="no two ports own a bank in a cycle, and every port owns every bank once in a lap; turns go round",
        proof=proof_of("store", "Banks"),
        method=Method.INDUCTION,
        depth=2,
        cover_depth=24,
        fault_depth=12,
        faults=(
            Fault(
                "a turn is given twice",
                "kvnode.rtl.wheel",
                "== self.ports, 0, self.turn + 1",
                "== self.ports, 1, self.turn + 1",
            ),
        ),
    ),
    Property(
        name="store/bytes",
        claim="a read gets the word last written to its row and bank, by whichever port, also in the cycle before",
        proof=proof_of("store", "Bytes", ports=4, partitions=SHARED, block_bytes=128),
        method=Method.STEP,
        cover_depth=12,
        fault_depth=10,
        faults=(
            Fault(
                "the rotator turns the data's way back one position too far",
                "kvnode.rtl.node.store",
                'bank_turn.eq(turn + (self.fault == "rotator"))',
                "bank_turn.eq(turn + 1)",
            ),
            Fault(
                "rows of reads and of writes do not take the same way",
                "kvnode.rtl.node.store",
                "rotate(list(self.write_row), self.rotation)",
                "rotate(list(self.write_row), self.rotation, back=True)",
            ),
            Fault(
                "data goes to the port that owns the bank when it comes out",
                "kvnode.rtl.node.store",
                "rotate(data, bank_turn, back=True)",
                "rotate(data, self.rotation, back=True)",
            ),
        ),
    ),
    Property(
        name="tables/forwarded",
        claim="a row of fills, sessions or leases is read with every earlier commit in it",
        proof=_forwarded,
        method=Method.STEP,
        cover_depth=8,
        fault_depth=8,
        faults=(
            Fault(
                "the commit of the cycle before is not forwarded",
                "kvnode.rtl.memory",
                "forward.eq(self.commit & (self.read_address == self.commit_address))",
                "forward.eq(0)",
            ),
            Fault(
                "a commit to any row is forwarded",
                "kvnode.rtl.memory",
                "forward.eq(self.commit & (self.read_address == self.commit_address))",
                "forward.eq(self.commit)",
            ),
        ),
    ),
    Property(
        name="tables/blocks",
        claim="the state of a block at stage 7 is the one last committed, those of the two operations in front "
        "included; its key is the one last written",
        proof=proof_of("tables", "Blocks"),
        method=Method.STEP,
        cover_depth=10,
        fault_depth=10,
        faults=(
            Fault(
                "the operation two in front is not forwarded",
                "kvnode.rtl.node.block_table",
                "previous.eq(self.commit),",
                "previous.eq(0),",
            ),
            Fault(
                "of two commits on their way, the older is forwarded",
                "kvnode.rtl.node.block_table",
                "with m.If(self.commit & (self.commit_slot == s7_slot)):",
                "with m.If(self.commit & (self.commit_slot == s7_slot) & ~(previous & (previous_slot == s7_slot))):",
            ),
            Fault(
                "keys are written whoever holds the slot",
                "kvnode.rtl.node.block_table",
                "keys.write_enable.eq(self.s6_write_key),",
                "keys.write_enable.eq(1),",
            ),
        ),
    ),
    Property(
        name="tables/fills",
        claim="rows of fills and members at stage 8 are those last committed; a fill row has one owner at a time",
        proof=proof_of("tables", "Fills"),
        method=Method.STEP,
        cover_depth=10,
        fault_depth=10,
        faults=(
            Fault(
                "members share the row of the first",
                "kvnode.rtl.node.fill_table",
                "parts.read_address.eq(Cat(self.s7_member, self.s7_row, self.s7_partition)),",
                "parts.read_address.eq(Cat(self.s7_member & 6, self.s7_row, self.s7_partition)),",
            ),
            Fault(
                "a release in the cycle of a grant is lost",
                "kvnode.rtl.node.fill_table",
                "with m.If(self.release & (self.s8_partition == i)):",
                "with m.If(self.release & ~self.take & (self.s8_partition == i)):",
            ),
            Fault(
                "rows are granted that are taken",
                "kvnode.rtl.node.fill_table",
                "self.s5_room.eq(~taken[i].all())",
                "self.s5_room.eq(1)",
            ),
        ),
    ),
    Property(
        name="index/found",
        claim="a key that was inserted is found by every later operation until it is removed, with its slot, and "
        "no other key is found for it",
        proof=proof_of("index", "Found", tag_bits=12),
        method=Method.STEP,
        cover_depth=24,
        fault_depth=20,
        faults=(
            UNSEEN_COMMIT,
            Fault(
                "the slot of a commit in front is taken whatever its tag is",
                "kvnode.rtl.node.index",
                "                    & (commit.tag == s4_tag)\n",
                "",
            ),
            Fault(
                "a way is chosen by the other table's row",
                "kvnode.rtl.node.index",
                "chosen.eq(Mux(second, s4_valid[1], s4_valid[0]))",
                "chosen.eq(Mux(second, s4_valid[0], s4_valid[1]))",
            ),
        ),
    ),
    Property(
        name="slots/one-place",
        claim="every slot is free, in use, retiring or being given back, and in one of these only: none is granted "
        "twice, none is lost, none is given back while a transfer holds it; counts are right, queues do not overflow",
        proof=proof_of("slots", "Slots", partitions=FEW_SLOTS),
        method=Method.STEP,
        cover_depth=40,
        fault_depth=40,
        faults=(
            Fault(
                "the pop of the operation in front is not seen",
                "kvnode.rtl.node.partitions",
                "front_popped.eq(pop_list),",
                "front_popped.eq(0),",
            ),
            Fault(
                "a slot that is given back while its place is read is not seen",
                "kvnode.rtl.node.partitions",
                "bypass.eq(written & (tail[1:] == presented[parity])),",
                "bypass.eq(0),",
            ),
            Fault(
                "a slot is reaped that a transfer holds",
                "kvnode.rtl.node.sweeper",
                "reap = queues.ready & ~held",
                "reap = queues.ready",
            ),
            Fault(
                "the oldest that retires is offered again before its queue has moved on",
                "kvnode.rtl.node.partitions",
                "self.ready.eq(occupied & ~(self.pop & (self.partition == self.upcoming)))",
                "self.ready.eq(occupied)",
            ),
        ),
    ),
    Property(
        name="slots/lives",
        claim="in the directory, where a slot is agrees with what the block table says: a block that lives has a slot "
        "in use, a slot that is granted has no block; what begins to retire, or is moved by handle, is in use",
        proof=proof_of("lives", "Lives", partitions=FEW_SLOTS),
        fast=False,
        method=Method.STEP,
        cover_depth=40,
        fault_depth=36,
        faults=(
            Fault(
                "a slot that was granted before its session refused it is forgotten",
                "kvnode.rtl.node.coherence",
                "Mux(plain == Event.ADMIT, Event.ADMIT_REFUSED, Event.REFUSE)",
                "Mux(plain == Event.ADMIT, Event.REFUSE, Event.REFUSE)",
            ),
            Fault(
                "a block that retires begins to retire whenever it is met",
                "kvnode.rtl.node.directory",
                "self.retire.eq(touched & (view.state != State.RETIRING) & (after.state == State.RETIRING)),",
                "self.retire.eq(touched & (after.state == State.RETIRING)),",
            ),
            Fault(
                "an operation does not see the state that the one two in front has left",
                "kvnode.rtl.node.block_table",
                "previous.eq(self.commit),",
                "previous.eq(0),",
            ),
        ),
    ),
    Property(
        name="slots/entries",
        claim="in the directory, the index has one entry for every slot that is not free, at the place that goes with "
        "the slot, and no other: what is found by key has a block, and what is reaped is found no more",
        proof=proof_of("lives", "Entries", partitions=FEW_SLOTS),
        fast=False,
        method=Method.STEP,
        cover_depth=40,
        fault_depth=32,
        faults=(
            Fault(
                "the key row keeps another place than the entry has",
                "kvnode.rtl.node.directory",
                "verdicts[6].where.eq(index.s5_choice),",
                "verdicts[6].where.eq(op5.where),",
            ),
            UNSEEN_COMMIT,
        ),
    ),
    Property(
        name="slots/fill-rows",
        claim="in the directory, every block that is being written has a fill row, which no other has, and no row is "
        "taken without one",
        proof=proof_of("lives", "FillRows", partitions=FEW_SLOTS),
        fast=False,
        method=Method.STEP,
        cover_depth=40,
        fault_depth=32,
        faults=(
            Fault(
                "the row of a block that its session refused after the grant is not given back",
                "kvnode.rtl.node.directory",
                "fills.release.eq(touched & (filling8 | v8.granted) & (after.state != State.FILLING)),",
                "fills.release.eq(touched & filling8 & (after.state != State.FILLING)),",
            ),
            Fault(
                "a block keeps the row of the one before in its slot",
                "kvnode.rtl.node.directory",
                "after.fill_row.eq(fill_row8),",
                "after.fill_row.eq(state8.fill_row),",
            ),
        ),
    ),
    Property(
        name="slots/leases",
        claim="in the directory, a block counts the leases that hold it, is never given up while one does, and only "
        "sealed blocks are held",
        proof=proof_of("lives", "Leased", partitions=FEW_SLOTS),
        fast=False,
        method=Method.STEP,
        cover_depth=44,
        fault_depth=40,
        faults=(
            Fault(
                "a block that nobody can find any more is given up although it is leased",
                "kvnode.rtl.node.coherence",
                "takes = v.dead & live & ~held",
                "takes = v.dead & live",
            ),
            Fault(
                "a lease is given back that is not held",
                "kvnode.rtl.node.coherence",
                "(sealed & v.lease, Event.UNLOCK)",
                "(sealed, Event.UNLOCK)",
            ),
        ),
    ),
    Property(
        name="sessions/read-after-write",
        claim="a question with `after = n` has no answer before every number up to n is committed, numbers never go "
        "back, writers of an epoch before are refused beyond their limit, and who was told to wait is woken when the "
        "number is committed, the session moves or ends, or at the first look after the deadline",
        proof=proof_of("sessions", "ReadAfterWrite"),
        fast=False,
        method=Method.STEP,
        cover_depth=24,
        fault_depth=16,
        faults=(
            Fault(
                "the committed number passes one that is not sealed",
                "kvnode.rtl.node.sessions",
                "committed.eq(row.committed + Mux(counts, steps, 0))",
                "committed.eq(row.committed + Mux(counts, steps + 1, 0))",
            ),
            Fault(
                "the session's move leaves its waiters asleep",
                "kvnode.rtl.node.sessions",
                "                        self.wakes.eq(row.waiters),\n                        after.waiters.eq(0),",
                "                        after.waiters.eq(0),",
            ),
            Fault(
                "the owner before may write as long as it likes",
                "kvnode.rtl.node.sessions",
                "(before & (sequence != 0) & (sequence <= row.limit))",
                "(before & (sequence != 0))",
            ),
            Fault(
                "of two that wait the one who comes last is woken",
                "kvnode.rtl.node.sessions",
                "Mux((row.waiters != 0) & (row.wake_at < self.ask_sequence), row.wake_at, self.ask_sequence)",
                "self.ask_sequence",
            ),
        ),
    ),
    *(
        Property(
            name=f"streams/queue-{depth}",
            claim=f"a queue of {depth} gives back every item once and in order, and holds what it offers",
            proof=functools.partial(_fifo, depth),
            method=Method.STEP,
            cover_depth=16,
            fault_depth=8,
            faults=(
                Fault(
                    "an item goes whether it is taken or not",
                    "kvnode.rtl.stream",
                    "queue.r_en.eq(self.o.ready),",
                    "queue.r_en.eq(1),",
                ),
            ),
        )
        for depth in (4, 5)
    ),
    Property(
        name="streams/responses",
        claim="what a port answers stays until it is taken, beat by beat; no message is interrupted; its queues have "
        "room for all that is brought",
        proof=proof_of("streams", "Responses"),
        method=Method.STEP,
        cover_depth=24,
        fault_depth=16,
        faults=(
            Fault(
                "a message that wakes goes in front of an answer that is offered",
                "kvnode.rtl.node.responder",
                "between = Mux(rsp.valid, rsp.ready & rsp.p.last, ~in_data & ~in_handles & (header_beat == 0))",
                "between = ~in_data & ~in_handles & (header_beat == 0)",
            ),
            EARLY_CREDIT,
        ),
    ),
    Property(
        name="streams/wide-responses",
        claim="the same of beats that hold two handles, and a header",
        proof=proof_of("streams", "Responses", beat_bytes=64),
        method=Method.STEP,
        cover_depth=24,
        fault_depth=16,
        faults=(EARLY_CREDIT,),
    ),
    Property(
        name="streams/asks",
        claim="a digest of a MATCH is asked for until it is taken or one in front has missed, and never one too many",
        proof=proof_of("streams", "Asks"),
        method=Method.STEP,
        cover_depth=24,
        fault_depth=16,
        faults=(
            Fault(
                "digests beyond those announced are looked up",
                "kvnode.rtl.node.match_walk",
                "surplus = missed | (arrived >= self.expected)",
                "surplus = missed | (arrived > self.expected)",
            ),
        ),
    ),
    Property(
        name="streams/landings",
        claim="the LAND of a WRITE is offered with its member and its CRC until it is taken",
        proof=proof_of("streams", "Landings"),
        method=Method.STEP,
        cover_depth=24,
        fault_depth=16,
        faults=(
            Fault(
                "a LAND is offered before its CRC is there",
                "kvnode.rtl.node.transfer",
                "landing.valid & landing.landing & landing.accepted & landing.summed",
                "landing.valid & landing.landing & landing.accepted",
            ),
        ),
    ),
    Property(
        name="contracts/directory",
        claim="the directory keeps what the proofs of its index, tables, free lists and sessions assume",
        proof=proof_of("contracts", "Callers"),
        method=Method.STEP,
        cover_depth=44,
        faults=(
            Fault(
                "a slot is granted to a key that is there",
                "kvnode.rtl.node.directory",
                "room5.eq(is_start & ~index.s5_hit & index.s5_room & free.s5_any & fills.s5_room),",
                "room5.eq(is_start & index.s5_room & free.s5_any & fills.s5_room),",
            ),
            Fault(
                "a writer that is late completes its block all the same",
                "kvnode.rtl.node.coherence",
                "                    (v.late, Event.REFUSE),\n                    (~v.owner, Event.FINISH_FOREIGN),",
                "                    (~v.owner, Event.FINISH_FOREIGN),",
            ),
        ),
    ),
    Property(
        name="transfers/reads",
        claim="every beat that is read is of a slot that its port holds, from when a READ was accepted until its last "
        "beat",
        proof=proof_of("transfers", "Reads"),
        method=Method.STEP,
        cover_depth=12,
        faults=(
            Fault(
                "a slot is let go a beat too early",
                "kvnode.rtl.node.transfer",
                "runs[i].valid.eq(~self.done)",
                "runs[i].valid.eq(run.count > 2)",
            ),
        ),
    ),
    Property(
        name="transfers/writes",
        claim="every beat that is written is of a slot that its port holds, of a WRITE that was accepted, until its "
        "LAND is in the directory",
        proof=proof_of("transfers", "Writes"),
        method=Method.STEP,
        cover_depth=12,
        faults=(
            Fault(
                "a slot is let go with the last beat of its WRITE",
                "kvnode.rtl.node.transfer",
                "with m.If(left & (lander == i)):",
                "with m.If(ended & (head == i)):",
            ),
            Fault(
                "what is refused is written",
                "kvnode.rtl.node.transfer",
                "wanted = run.accepted & (run.count != 0)",
                "wanted = run.count != 0",
            ),
        ),
    ),
    Property(
        name="contracts/node",
        claim="what a port offers is taken in its turn and not else, its result comes nine cycles later, a beat of the "
        "store three cycles after it was asked for",
        proof=proof_of("contracts", "Turns"),
        method=Method.STEP,
        cover_depth=44,
        faults=(
            Fault(
                "the turn is that of the next port",
                "kvnode.rtl.node.node",
                "chosen.eq(wheel.turn)",
                "chosen.eq(wheel.next_turn)",
            ),
            Fault(
                "a result goes to every port",
                "kvnode.rtl.node.node",
                "directory.result_valid & (directory.result_owner == number) & ~down",
                "directory.result_valid & ~down",
            ),
        ),
    ),
    Property(
        name="streams/port",
        claim="a port keeps what its responder, its writer and its walk want to be promised, whatever the messages: so "
        "their streams hold in it, no answer is lost, and reads and writes have a place",
        proof=proof_of("streams", "Ports", 1),
        fast=False,
        method=Method.STEP,
        cover_depth=40,
        faults=(
            Fault(
                "a READ is issued while two others move",
                "kvnode.rtl.node.port",
                "read_room = reads != RUNS",
                "read_room = reads == reads",
            ),
            Fault(
                "no place is kept for an answer",
                "kvnode.rtl.node.port",
                "response_room = outstanding != ANSWERS",
                "response_room = outstanding == outstanding",
            ),
            Fault(
                "a MATCH with leases does not wait for the handles of the one before",
                "kvnode.rtl.node.port",
                "may_ask = response_room & (~locks | ~walk.first | responder.handles_idle)",
                "may_ask = response_room",
            ),
        ),
    ),
    Property(
        name="answers/bound",
        claim="every message that a port has taken is answered, in as many cycles at most as models.spec.bounds says, "
        "while the beats of answers are taken as they come",
        proof=proof_of("answers", "Answers", 1),
        fast=False,
        method=Method.STEP,
        cover_depth=44,
        faults=(
            Fault(
                "wakes go in front of an answer for ever",
                "kvnode.rtl.node.responder",
                "between & ~(waking & answers_now)",
                "between",
            ),
            Fault(
                "a WRITE that was refused stays in the writer",
                "kvnode.rtl.node.transfer",
                "left = self.land_taken | landing.valid & landing.landing & ~landing.accepted",
                "left = self.land_taken",
            ),
        ),
    ),
]
