"""What the register bank refuses before there is hardware, and which members it has."""

import pytest
from amaranth.hdl import Shape
from amaranth.lib.wiring import In, Out

from kvnode.rtl.csr.bank import RegisterBank
from kvnode.rtl.csr.description import load

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

#: All there is to know besides a description: an input, a pulse, storage with a reset value and without, an array.
TEXT = """
addrmap small {
    default regwidth = 32; default sw = r; default hw = w;
    reg { field { hw = na; } serial[7:0] = 5; field {} fill[11:8]; } state;
    reg {
        field { sw = rw; hw = r; swmod; } size[15:0];
        field { sw = rw; hw = r; } mode[17:16] = 2;
        field { sw = w; hw = r; singlepulse; } go[31:31] = 0;
    } order;
    reg { field { sw = rw; hw = r; swmod; } value[31:0]; } limit[3];
};
"""
LIMITS = {f"limit_{index}_value": index for index in range(3)}


@pytest.fixture
def description(tmp_path):
    path = tmp_path / "small.rdl"
    path.write_text(TEXT)
    return load(path)


def members(bank):
    """{name: (flow, bits, reset value)} of the members but those of the bus."""
    every = bank.signature.members
    return {
        name: (member.flow, Shape.cast(member.shape).width, member.init or 0)
        for name, member in every.items()
        if "_" in name
    }


def test_members_follow_from_the_fields(description):
    assert members(RegisterBank(description, resets={"order_size": 300, **LIMITS})) == {
        "state_fill": (In, 4, 0),
        "order_size": (Out, 16, 300),
        "order_mode": (Out, 2, 2),
        "order_go": (Out, 1, 0),
        "order_written": (Out, 1, 0),
        **{f"limit_{index}_value": (Out, 32, index) for index in range(3)},
        **{f"limit_{index}_written": (Out, 1, 0) for index in range(3)},
    }


def test_element_that_is_not_there_has_no_members(description):
    found = members(RegisterBank(description, counts={"limit": 1}, resets={"order_size": 0, "limit_0_value": 9}))
    assert {name for name in found if name.startswith("limit")} == {"limit_0_value", "limit_0_written"}


def test_bits_that_are_not_there_leave_the_member_narrow(description):
    found = members(
        RegisterBank(description, bits={"order_size": 3, "state_fill": 1}, resets={"order_size": 7, **LIMITS})
    )
    assert (found["order_size"], found["state_fill"]) == ((Out, 3, 7), (In, 1, 0))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"counts": {"row": 1}}, "counts: the description has no array 'row'; it has limit"),
        ({"counts": {"limit": 4}}, "counts: limit = 4: must be 0 to 3"),
        ({"counts": {"limit": -1}}, "counts: limit = -1: must be 0 to 3"),
        ({"bits": {"order_width": 1}}, "bits: there is no field 'order_width' whose width could be set"),
        ({"bits": {"state_serial": 1}}, "bits: there is no field 'state_serial' whose width could be set"),
        ({"bits": {"order_size": 0}}, "bits: order_size = 0: must be 1 to 16"),
        ({"bits": {"order_size": 17}}, "bits: order_size = 17: must be 1 to 16"),
        ({"counts": {"limit": 1}, "bits": {"limit_1_value": 1}}, "bits: there is no field 'limit_1_value'"),
        ({"resets": {"order_mode": 1}}, "resets: there is no field 'order_mode' that takes a reset value"),
        ({"resets": {"state_fill": 1}}, "resets: there is no field 'state_fill' that takes a reset value"),
        ({"resets": LIMITS}, "resets: the reset value of 'order_size' is missing"),
        ({"resets": {"order_size": 0, **LIMITS, "limit_2_value": 1 << 32}}, "limit_2_value = 4294967296: does not fit"),
        ({"resets": {"order_size": -1, **LIMITS}}, "resets: order_size = -1: does not fit in 16 bits"),
        ({"resets": {"order_size": 8, **LIMITS}, "bits": {"order_size": 3}}, "order_size = 8: does not fit in 3 bits"),
        (
            {"resets": {"order_size": 0, **LIMITS}, "bits": {"order_mode": 1}},
            "resets: order_mode = 2: does not fit in 1 bits",
        ),
    ],
)
def test_argument_that_does_not_fit_the_description_is_refused(description, arguments, message):
    with pytest.raises(ValueError, match=message):
        RegisterBank(description, **arguments)
