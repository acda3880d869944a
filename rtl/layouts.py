"""The one bridge from models.spec to hardware shapes: messages, operations, results and trace records as structs.

Used by: every RTL block. Nothing else in rtl/ knows a field's width or offset.
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data
from amaranth.utils import bits_for

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.clock import TIME_BITS
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.layout import Layout
from kvnode.models.spec.messages import REQUEST, RESPONSE, TRACE
from kvnode.models.spec.policy import AGE_MAX, CLASS_COUNT
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.models.spec.sessions import EPOCH_BITS, SEQUENCE_BITS
from kvnode.models.spec.settings import Setting

KIND_BITS = bits_for(max(Kind))
TICK_BITS = TIME_BITS
STATUS_BITS = bits_for(max(Status))
STATE_BITS = bits_for(max(State))
AGE_BITS = bits_for(AGE_MAX)
CLASS_BITS = bits_for(CLASS_COUNT - 1)
CAUSE_BITS = bits_for(max(Cause))
MEMBER_BITS = bits_for(MAX_MEMBERS - 1)
MEMBERS_BITS = bits_for(MAX_MEMBERS)
CRC_BITS = 32
#: Bits of a session's or a lease's number on the wire.
NUMBER_BITS = 32


def struct(layout: Layout) -> data.StructLayout:
    """Hardware struct of a spec layout: the same fields at the same bits."""
    return data.StructLayout({field.name: field.size_bits for field in layout.fields.values()})


REQUEST_STRUCT = struct(REQUEST)
RESPONSE_STRUCT = struct(RESPONSE)
TRACE_STRUCT = struct(TRACE)


def index_bits(count: int) -> int:
    """Bits of a number below `count`, at least one."""
    return max(1, (count - 1).bit_length())


def filled(layout: data.StructLayout, **values):
    """A packed value of a struct of which only some fields are named; the others are zero.

    Raises ValueError for a field that the struct has not, or a value of another width than its field.
    """
    parts = []
    for name, field in layout:
        part = Value.cast(values.pop(name, Const(0, field.width)))
        if len(part) != field.width:
            raise ValueError(f"the field {name!r} has {field.width} bits, its value {len(part)}")
        parts.append(part)
    if values:
        raise ValueError(f"the struct has no field {sorted(values)[0]!r}")
    return Cat(parts)


def one_of(value, constants):
    """Whether a hardware value equals one of some constants."""
    return Cat(value == constant for constant in constants).any()


class Shapes:
    """Widths and structs of one configuration. Sizes in beats have `_beats` in their meaning, never bytes.

    `operation` is what a port or the sweeper gives the directory; `cargo` is the part of it that only the last stages
    look at: with the 256-bit digest it travels in a delay line. `result` is what comes back (`number`: of the session
    or the granted lease; `word`: the CRC of a sealed block, of a session the committed number, for WRITE the CRC of its
    member's part so far, which with `fresh` has landed completely); `where` is the place of an index entry, row
    relative to the partition. `session`: a session's number, of which the highest bit says that there is one.
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self.slot_bits = config.slot_bits
        self.partition_bits = index_bits(len(config.partitions))
        self.owner_bits = index_bits(config.ports + 1)
        self.port_bits = index_bits(config.ports)
        self.model_bits = index_bits(config.models)
        self.beat_bits = bits_for(config.block_beats)
        self.row_bits = max(1, max(config.rows_log2))
        self.way_bits = index_bits(config.ways)
        self.fill_row_bits = index_bits(config.fill_rows)
        self.data_bits = 8 * config.beat_bytes
        self.count_bits = bits_for(config.max_match_digests)
        self.session_bits = config.session_bits + config.session_generation_bits + 1
        self.session_row_bits = index_bits(config.sessions)
        self.lease_row_bits = index_bits(config.leases)
        self.look_bits = max(self.fill_row_bits, self.session_row_bits, self.lease_row_bits, bits_for(max(Setting)))
        self.where = data.StructLayout({"table": 1, "row": self.row_bits, "way": self.way_bits})
        self.operation = data.StructLayout(
            {
                "kind": KIND_BITS,
                "status": STATUS_BITS,
                "opcode": 8,
                "tag": 16,
                "model_id": self.model_bits,
                "group": 8,
                "klass": CLASS_BITS,
                "by_handle": 1,
                "slot": self.slot_bits,
                "generation": config.generation_bits,
                "offset": self.beat_bits,
                "length": self.beat_bits,
                "chain_first": 1,
                "whole": 1,
                "locks": 1,
                "private": 1,
                "session": self.session_bits,
                "where": self.where,
            }
        )
        self.cargo = data.StructLayout(
            {
                "member": MEMBER_BITS,
                "members": MEMBERS_BITS,
                "ttl": 8,
                "deadline": 8,
                "ports": config.ports,
                "session_epoch": EPOCH_BITS,
                "sequence": SEQUENCE_BITS,
                "extent": self.beat_bits,
                "row": self.look_bits,
                "lease": NUMBER_BITS,
                "crc": CRC_BITS,
                "part_crc": CRC_BITS,
            }
        )
        self.result = data.StructLayout(
            {
                "kind": KIND_BITS,
                "status": STATUS_BITS,
                "opcode": 8,
                "tag": 16,
                "found": 1,
                "slot": self.slot_bits,
                "generation": config.generation_bits,
                "offset": self.beat_bits,
                "length": self.beat_bits,
                "watermark": self.beat_bits,
                "fresh": 1,
                "locked": 1,
                "number": NUMBER_BITS,
                "epoch": EPOCH_BITS,
                "word": 32,
            }
        )
        self.beat = data.StructLayout({"data": self.data_bits, "last": 1})
        self.hold = data.StructLayout({"valid": 1, "partition": self.partition_bits, "slot": self.slot_bits})

    def number_of_session(self, session):
        """The number of a session as messages and trace records have it."""
        return Cat(session[:-1], Const(0, NUMBER_BITS - self.session_bits), session[-1])

    def session_of_number(self, number):
        """The inverse; the bits between must be zero."""
        return Cat(number[: self.session_bits - 1], number[-1])
