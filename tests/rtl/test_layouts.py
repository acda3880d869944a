"""Hardware structs against the spec's layouts, bit for bit, and the widths of a configuration."""

import random

import pytest
from amaranth.hdl import Cat, Const, Signal
from amaranth.lib import data

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.messages import HANDLE, NUMBERED, REQUEST, RESPONSE, TRACE
from kvnode.rtl.layouts import (
    AGE_BITS,
    CAUSE_BITS,
    CLASS_BITS,
    KIND_BITS,
    MEMBER_BITS,
    MEMBERS_BITS,
    NUMBER_BITS,
    REQUEST_STRUCT,
    RESPONSE_STRUCT,
    STATE_BITS,
    STATUS_BITS,
    TRACE_STRUCT,
    Shapes,
    filled,
    index_bits,
    struct,
)

STRUCTS = [
    (REQUEST, REQUEST_STRUCT),
    (RESPONSE, RESPONSE_STRUCT),
    (TRACE, TRACE_STRUCT),
    (HANDLE, struct(HANDLE)),
]
SMALL = data.StructLayout({"low": 3, "middle": 1, "high": 4})


def bits_of(value):
    """The constant that an expression of constants stands for."""
    return int(Const.cast(value).value)


@pytest.mark.parametrize(("layout", "shape"), STRUCTS, ids=lambda item: getattr(item, "name", ""))
def test_struct_has_the_fields_of_its_layout_at_the_same_bits(layout, shape):
    assert shape.size == 8 * layout.size_bytes
    assert {name: (f.offset, f.width) for name, f in shape} == {
        f.name: (8 * f.offset_bytes, 8 * f.size_bytes) for f in layout.fields.values()
    }


@pytest.mark.parametrize(("layout", "shape"), STRUCTS, ids=lambda item: getattr(item, "name", ""))
def test_struct_reads_what_the_layout_packed(layout, shape):
    rng = random.Random(layout.name)
    values = {f.name: rng.getrandbits(f.size_bits) for f in layout.fields.values()}
    view = shape.from_bits(int.from_bytes(layout.pack(**values), "little"))
    assert {name: view[name] for name, _ in shape} == values


def test_filled_packs_named_fields_and_zeroes_the_rest():
    assert bits_of(filled(SMALL, high=0b1010, low=0b101)) == 0b1010_0_101
    assert bits_of(filled(SMALL)) == 0
    assert len(filled(SMALL, middle=1)) == 8


def test_filled_takes_hardware_values_of_the_fields_width():
    assert bits_of(filled(SMALL, middle=Const(1, 1), high=Cat(Const(1, 2), Const(3, 2)))) == 0b1101_1_000


def test_filled_refuses_a_field_that_is_not_there():
    with pytest.raises(ValueError, match="the struct has no field 'hihg'"):
        filled(SMALL, low=Const(1, 3), hihg=2)


@pytest.mark.parametrize(
    ("name", "value", "bits", "width"),
    [
        ("low", Signal(2), 3, 2), ("low", Signal(4), 3, 4), ("middle", Const(1, 2), 1, 2), ("high", Signal(3), 4, 3),
        ("low", 1, 3, 1), ("high", 16, 4, 5), ("high", Cat(Const(1, 2), Const(3, 3)), 4, 5),
    ],
)  # fmt: skip
def test_filled_refuses_a_value_of_another_width_which_would_move_the_fields_behind_it(name, value, bits, width):
    with pytest.raises(ValueError) as caught:
        filled(SMALL, **{name: value})
    assert str(caught.value) == f"the field {name!r} has {bits} bits, its value {width}"


def test_codes_take_as_many_bits_as_their_largest_value():
    assert (len(Kind), KIND_BITS) == (27, 5)
    assert (len(Status), STATUS_BITS) == (20, 5)
    assert (len(State), STATE_BITS) == (4, 2)
    assert (len(Cause), CAUSE_BITS) == (12, 4)
    assert (AGE_BITS, CLASS_BITS) == (2, 2)
    # Eight members at most, counted from 0, and their number.
    assert (MEMBER_BITS, MEMBERS_BITS) == (3, 4)


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_opcode_and_tag_are_carried_as_they_came_so_that_any_message_is_answered_with_its_own(name):
    shapes = Shapes(preset(name))
    for layout in (shapes.operation, shapes.result):
        assert layout["opcode"].width == REQUEST.fields["opcode"].size_bits == 8
        assert layout["tag"].width == REQUEST.fields["tag"].size_bits == 16


@pytest.mark.parametrize(
    ("count", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10), (1025, 11)]
)
def test_index_bits_reach_every_number_below_the_count(count, bits):
    assert index_bits(count) == bits


def test_widths_of_tiny_are_those_worked_out_by_hand():
    shapes = Shapes(preset("tiny"))
    # 8 slots, 2 partitions, 2 ports and the sweeper, blocks of 8 beats, 4 rows of 2 ways, 2 fill rows, 2 digests.
    assert (shapes.slot_bits, shapes.partition_bits, shapes.owner_bits, shapes.port_bits) == (3, 1, 2, 1)
    assert (shapes.model_bits, shapes.beat_bits, shapes.row_bits, shapes.way_bits) == (1, 4, 2, 1)
    assert (shapes.fill_row_bits, shapes.data_bits, shapes.count_bits) == (1, 128, 2)
    assert (shapes.where.size, shapes.hold.size, shapes.beat.size) == (4, 5, 129)
    # 2 sessions of 16 generations and a bit above, 4 leases, 6 settings.
    assert (shapes.session_bits, shapes.session_row_bits, shapes.lease_row_bits, shapes.look_bits) == (6, 1, 2, 3)


def test_widths_of_sim_are_those_worked_out_by_hand():
    shapes = Shapes(preset("sim"))
    assert (shapes.slot_bits, shapes.partition_bits, shapes.owner_bits, shapes.port_bits) == (12, 2, 3, 2)
    assert (shapes.model_bits, shapes.beat_bits, shapes.row_bits, shapes.way_bits) == (2, 8, 9, 3)
    assert (shapes.fill_row_bits, shapes.data_bits, shapes.count_bits) == (3, 256, 8)
    # 16 sessions of 2^20 generations, 64 leases.
    assert (shapes.session_bits, shapes.session_row_bits, shapes.lease_row_bits, shapes.look_bits) == (25, 4, 6, 6)


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_lengths_and_watermarks_of_a_whole_block_fit(name):
    shapes = Shapes(preset(name))
    beats = preset(name).block_bytes // preset(name).beat_bytes
    for layout in (shapes.operation, shapes.result):
        assert layout["length"].width >= beats.bit_length()
    assert shapes.result["watermark"].width >= beats.bit_length()


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_cargo_has_the_names_of_the_trace_and_fits_its_fields(name):
    for field, place in Shapes(preset(name)).cargo:
        assert place.width <= 8 * TRACE.fields[field].size_bytes, field


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_number_of_a_session_has_its_row_below_its_generation_and_one_bit_on_top(name):
    config = preset(name)
    shapes = Shapes(config)
    row, generation = config.sessions - 1, (1 << config.session_generation_bits) - 2
    inner = Const(1 << shapes.session_bits - 1 | generation << config.session_bits | row, shapes.session_bits)
    number = NUMBERED | generation << config.session_bits | row
    assert bits_of(shapes.number_of_session(inner)) == number
    assert len(shapes.number_of_session(inner)) == NUMBER_BITS
    assert bits_of(shapes.session_of_number(Const(number, NUMBER_BITS))) == inner.value
