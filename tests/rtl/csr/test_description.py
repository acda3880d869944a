"""The description of the node's registers as data, and what a description may not say."""

import pytest

from kvnode.rtl.csr.description import Choice, DescriptionError, Role, load

FRAME = "addrmap top {{ default regwidth = 32; default sw = r; default hw = w;\n{} }};"
REGISTER = "reg { field {} one; } some;"


@pytest.fixture
def registers():
    return {register.member: register for register in load().registers}


def load_text(tmp_path, text):
    path = tmp_path / "part.rdl"
    path.write_text(FRAME.format(text))
    return load(path)


def test_addresses_ascend_and_are_whole_words():
    addresses = [register.address for register in load().registers]
    assert addresses == sorted(set(addresses))
    assert all(address % 4 == 0 for address in addresses)
    assert load().size_bytes == addresses[-1] + 4 == 0x1000 + 7 * 0x80 + 0x50 + 4


def test_fields_of_a_register_do_not_overlap(registers):
    for register in registers.values():
        assert sum(field.mask for field in register.fields) < 1 << 32
        for field in register.fields:
            others = [other.mask for other in register.fields if other is not field]
            assert not any(field.mask & mask for mask in others), register.member_of(field)


def test_everything_is_described(registers):
    for register in registers.values():
        assert register.title and register.desc.endswith("."), register.member
        assert all(field.desc.endswith(".") for field in register.fields), register.member


def test_poison_locks_slot_and_partition_while_busy(registers):
    poison = registers["poison"]
    slot, partition, busy = sorted(poison.fields, key=lambda field: field.lsb)
    assert poison.address == 0x34 and poison.announced
    assert [slot.mask, partition.mask, busy.mask] == [0xFFFFF, 0xFF << 20, 1 << 31]
    assert [slot.role, partition.role, busy.role] == [Role.STORAGE, Role.STORAGE, Role.INPUT]
    assert [slot.locked_by, partition.locked_by, busy.locked_by] == ["busy", "busy", None]
    assert [slot.reset, partition.reset, busy.reset] == [0, 0, None]
    assert poison.member_of(slot) == "poison_slot"


def test_register_of_an_array_has_its_place(registers):
    free = registers["partition_3_free_slots"]
    assert (free.address, free.array, free.index) == (0x1000 + 3 * 0x80 + 0x40, "partition", 3)
    assert free.name == "partition_free_slots"
    word = registers["event_data_15"]
    assert (word.address, word.array, word.index, word.name) == (0x80 + 15 * 4, "event_data", 15, "event_data")
    arrays = load().arrays
    assert {name: (a.address, a.count, a.stride_bytes) for name, a in arrays.items()} == {
        "event_data": (0x80, 16, 4),
        "partition": (0x1000, 8, 0x80),
    }


def test_role_follows_from_who_reads_and_writes(registers):
    fields = {f"{register.member}.{field.name}": field for register in registers.values() for field in register.fields}
    assert fields["id.value"].role == Role.CONSTANT
    assert fields["id.value"].reset.to_bytes(4, "big") == b"KVND"
    assert fields["status.ready"].role == Role.INPUT
    assert fields["control.reset"].role == Role.PULSE
    assert fields["control.drain"].role == Role.STORAGE
    assert fields["partition_0_lease_ticks.value"].reset is None
    assert fields["partition_0_options.public"].role == Role.INPUT
    assert not registers["status"].writable and registers["control"].writable


def test_values_with_a_name_are_kept(registers):
    (sharing,) = (field for field in registers["capabilities_3"].fields if field.name == "sharing")
    strict, donate = sharing.choices
    assert strict == Choice("strict", 0, strict.desc) and donate == Choice("donate", 1, donate.desc)


def test_lock_may_be_told_in_any_order(tmp_path):
    text = "reg { field {} busy[31:31]; field { sw = rw; hw = r; } value[7:0] = 7; value->swwel = busy; } some;"
    value = load_text(tmp_path, text).registers[0].fields[0]
    assert (value.name, value.locked_by, value.reset) == ("value", "busy", 7)


@pytest.mark.parametrize(
    "text, message",
    [
        ("signal {} any; " + REGISTER, "top.any: an address map holds registers and register files, nothing else"),
        ("external mem { mementries = 4; memwidth = 32; } some;", "top.some: an address map holds registers and"),
        ("regfile { regfile { reg { field {} one; } a; } b; } c;", "top.c.b: a register file holds single registers"),
        ("regfile { reg { field {} one; } a[2]; } b;", r"top.b.a\[\]: a register file holds single registers"),
        ("reg { field {} one; } some[2][3];", r"top.some\[0\]\[0\]: an array has one dimension, not 2"),
        ("external " + REGISTER, "top.some: the register bank does not build external registers and aliases"),
        ("reg shape { field {} one; }; shape a; alias a shape b;", "top.b: the register bank does not build external"),
        ("reg { regwidth = 16; field {} one; } some;", "top.some: regwidth is 16; it must be 32"),
        ("reg { accesswidth = 16; field {} one; } some;", "top.some: accesswidth is 16; it must be 32"),
        ("reg { field {} one; } some @ 0x6;", "top.some: the address 0x6 is not a multiple of 4"),
        ("reg { field {} one; } some @ 0x10000;", "top.some: the address 0x10000 has more than 16 bits"),
        ("regfile { alignment = 8; reg { field {} one; } a; } b;", "top.b: .* does not build the property 'alignment'"),
        ("reg { field { sw = rw; hw = r; counter; } one = 0; } some;", "top.some.one: .* the property 'counter'"),
        ("reg { field { sw = rw; hw = r; rclr; } one = 0; } some;", "top.some.one: .* the property 'rclr'"),
        ("reg { field { intr; } one; } some;", "top.some.one: .* the property 'intr'"),
        ("reg { field { sw = rw; hw = rw; } one = 0; } some;", "top.some.one: sw/hw is rw/rw; there are r/na"),
        ("reg { field { sw = w; hw = r; } one = 0; } some;", "top.some.one: sw/hw is w/r; there are r/na"),
        (
            "reg { field { sw = rw; hw = r; singlepulse; } one = 0; } some;",
            "top.some.one: sw/hw is rw/r, singlepulse; there are r/na",
        ),
        ("reg { field {} one = 1; } some;", "top.some.one: an input has no reset value"),
        ("reg { field { hw = na; } one; } some;", "top.some.one: a constant needs a reset value"),
        (
            "reg { field { sw = rw; hw = r; } a = 0; field { sw = rw; hw = r; } b; b->reset = a; } some;",
            "top.some.b: the reset value must be a number",
        ),
        ("reg { field { swmod; } one; } some;", "top.some.one: swmod and swwel are for fields that software writes"),
        ("reg { field { sw = rw; hw = r; swwel; } one = 0; } some;", "top.some.one: swwel must name a field of the"),
        (
            "reg { field {} one; } a; reg { field { sw = rw; hw = r; } one = 0; } b; b.one->swwel = a.one;",
            "top.b.one: swwel must name a field of the same register",
        ),
        (
            "reg { field { sw = rw; hw = r; } a = 0; field { sw = rw; hw = r; } b = 0; b->swwel = a; } some;",
            "top.some.b: swwel must name an input",
        ),
        ("reg { field {} b_c; } a; reg { field {} c; } a_b;", "two fields would have the name 'a_b_c'"),
        (
            "reg { field { sw = rw; hw = r; swmod; } one = 0; field {} written; } some;",
            "two fields would have the name 'some_written'",
        ),
        ("reg { field {} one } some;", r"^part.rdl:2: "),
        ("", "Address map 'top' must contain at least one reg"),
    ],
)
def test_what_the_bank_cannot_build_is_refused(tmp_path, text, message):
    with pytest.raises(DescriptionError, match=message):
        load_text(tmp_path, text)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DescriptionError, match="absent.rdl"):
        load(tmp_path / "absent.rdl")
