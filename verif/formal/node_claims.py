"""What is proved of the node as a whole: isolation, and what becomes of a block. See block_claims for the rest."""

from .faults import Fault
from .suite import Method, Property, proof_of

DONATED = Fault(
    "`donate`: an idle turn of a tenant goes to the next port",
    "kvnode.rtl.node.node",
    'if config.sharing == "donate":',
    'if config.sharing == "strict":',
)

PROPERTIES = [
    Property(
        name="coherence/blocks",
        claim="only moves of the state table; a generation ends only when its slot is free again, and till then a "
        "sealed block's length and CRC stay; SEALED only when every member's bytes have landed with the right CRC; no "
        "READ of a beat at or past the watermark, nor of another generation",
        proof=proof_of("coherence", "Blocks"),
        method=Method.STEP,
        cover_depth=30,
        faults=(
            Fault(
                "PUT_END does not wait for the last beats",
                "kvnode.rtl.node.coherence",
                "(v.landed != v.end, Event.FINISH_SHORT),",
                "(v.accepted != v.end, Event.FINISH_SHORT),",
            ),
            Fault(
                "a commit is not forwarded to the operation behind the next",
                "kvnode.rtl.node.block_table",
                "with m.If(previous & (previous_slot == s7_slot)):",
                "with m.If(0):",
            ),
            Fault(
                "a handle of an earlier generation is good",
                "kvnode.rtl.node.directory",
                "same_generation = (state7.generation == op7.generation) & (same_model | (op7.kind == Kind.RELEASE))",
                "same_generation = same_model | (op7.kind == Kind.RELEASE)",
            ),
        ),
    ),
    Property(
        name="coherence/equivalence",
        claim="the RTL's next state, watermarks, age and answer are those of models.spec.coherence, for all inputs",
        proof=proof_of("equivalence", "Equivalence"),
        fast=False,
        method=Method.BOUNDED,
        depth=1,
        cover_depth=1,
        faults=(
            Fault(
                "a READ of a block being written may end one beat beyond the watermark",
                "kvnode.rtl.node.coherence",
                "(end <= v.landed)",
                "(end <= v.landed + 1)",
            ),
            Fault(
                "PUT_END does not look at the CRC",
                "kvnode.rtl.node.coherence",
                "(~v.crc_right, Event.FINISH_WRONG),",
                "(v.crc_right & ~v.crc_right, Event.FINISH_WRONG),",
            ),
        ),
    ),
    Property(
        name="isolation/runs",
        claim="the same in the first cycles of a node whose tables have been cleared: donated turns show within these",
        # A header is one beat: the shortest run in which something shows.
        proof=proof_of("isolation", "NonInterference", 0, True, beat_bytes=64),
        method=Method.BOUNDED,
        depth=6,
        cover_depth=6,
        faults=(DONATED,),
        fast=False,
    ),
    *(
        Property(
            name=f"isolation/{'ab'[tenant]}",
            claim=f"what tenant {'ab'[tenant]} of `tiny` (8-byte beats) sees never depends on the other",
            # Narrow beats, short blocks: what is wide or deep makes the proof long, and no other.
            proof=proof_of("isolation", "NonInterference", tenant, beat_bytes=8, block_bytes=64),
            method=Method.STEP,
            faults=(
                DONATED,
                Fault(
                    "answers that are not valid keep their payload",
                    "kvnode.rtl.node.store",
                    "self.read_data[port].eq(Mux(valid_read[port], value, 0)),",
                    "self.read_data[port].eq(value),",
                ),
                Fault(
                    "the sweeper leaves its own turn to the next partition when there is nothing to do",
                    "kvnode.rtl.node.sweeper",
                    "self.valid.eq(own_turn | reap | low),",
                    "self.valid.eq(reap | low),",
                ),
            ),
            fast=False,
        )
        for tenant in (0, 1)
    ),
]
