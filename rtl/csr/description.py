"""A register description in SystemRDL as plain data: registers with their addresses, fields with their bits.

Only what the register bank can build is taken. Everything else that a description may say (counters, interrupts, side
effects of a read, registers of another width) is refused by name, so that no property is silently without effect.

Used by: bank, generate, register bank bench.
"""

import enum
import functools
from dataclasses import dataclass
from pathlib import Path

from systemrdl import RDLCompiler
from systemrdl.messages import MessagePrinter, RDLCompileError, Severity
from systemrdl.node import AddressableNode, AddrmapNode, FieldNode, RegfileNode, RegNode
from systemrdl.rdltypes import AccessType
from systemrdl.source_ref import FileSourceRef, SourceRefBase

NODE = Path(__file__).with_name("node.rdl")

REGISTER_BITS = 32
REGISTER_BYTES = REGISTER_BITS // 8
ADDRESS_BITS = 16

FIELD_PROPERTIES = {"name", "desc", "sw", "hw", "reset", "encode", "singlepulse", "swmod", "swwel"}
BLOCK_PROPERTIES = {"name", "desc", "regwidth", "accesswidth", "littleendian", "addressing"}


class DescriptionError(ValueError):
    """A description that is wrong, or that the register bank cannot build; the message names the place and the rule."""


class Role(enum.Enum):
    """What a field is in hardware, by the access that software (`sw`) and hardware (`hw`) have."""

    #: sw = r, hw = na, with a reset value: always the same.
    CONSTANT = "constant"
    #: sw = r, hw = w: what the hardware says at the time of the read.
    INPUT = "input"
    #: sw = rw, hw = r: holds what software wrote.
    STORAGE = "storage"
    #: sw = w, hw = r, singlepulse: one cycle long 1 when software writes 1; reads 0.
    PULSE = "pulse"


_ROLES = {
    (AccessType.r, AccessType.na): Role.CONSTANT,
    (AccessType.r, AccessType.w): Role.INPUT,
    (AccessType.rw, AccessType.r): Role.STORAGE,
    (AccessType.w, AccessType.r): Role.PULSE,
}


@dataclass(frozen=True)
class Choice:
    """A value of a field that has a name."""

    name: str
    value: int
    desc: str


@dataclass(frozen=True)
class Field:
    """Bits `lsb` to `lsb + bits - 1` of a register.

    `reset` is None for an input, and for storage whose reset value comes from the configuration. `announced`: a write
    tells the hardware (property swmod). `locked_by`: the field of the same register that makes a write to this one
    have no effect while it is 1 (property swwel).
    """

    name: str
    desc: str
    lsb: int
    bits: int
    role: Role
    reset: int | None
    announced: bool
    locked_by: str | None
    choices: tuple[Choice, ...]

    @property
    def mask(self) -> int:
        return ((1 << self.bits) - 1) << self.lsb


@dataclass(frozen=True)
class Register:
    """A register of 32 bits at a byte address.

    `name` is its path without indices (`partition_free_slots`), `member` the path with them (`partition_3_free_slots`).
    `array` names the array that it is in, `index` its place there.
    """

    name: str
    member: str
    title: str
    desc: str
    address: int
    fields: tuple[Field, ...]
    array: str | None
    index: int

    @property
    def writable(self) -> bool:
        return any(field.role in (Role.STORAGE, Role.PULSE) for field in self.fields)

    @property
    def announced(self) -> bool:
        """Whether there is a pulse that tells the hardware of a write."""
        return any(field.announced for field in self.fields)

    def member_of(self, field: Field) -> str:
        """Name of a field among all fields of the description."""
        return f"{self.member}_{field.name}"


@dataclass(frozen=True)
class Array:
    """`count` equal registers or groups of registers, `stride_bytes` from one to the next."""

    name: str
    title: str
    desc: str
    address: int
    count: int
    stride_bytes: int


@dataclass(frozen=True)
class Description:
    """All registers of an address map, in the order of their addresses, and the arrays that some of them form."""

    name: str
    title: str
    desc: str
    registers: tuple[Register, ...]
    arrays: dict[str, Array]

    @property
    def size_bytes(self) -> int:
        """The first byte address behind all registers."""
        return self.registers[-1].address + REGISTER_BYTES


@functools.cache
def load(path: Path = NODE) -> Description:
    """Description of a SystemRDL file; raises DescriptionError."""
    return describe(compile_file(path))


def compile_file(path: Path) -> AddrmapNode:
    """The compiled address map of a SystemRDL file. Raises DescriptionError with the text of every message of the
    compiler; a warning is an error.
    """
    messages = _Messages()
    compiler = RDLCompiler(message_printer=messages)
    try:
        compiler.compile_file(str(path))
        top = compiler.elaborate().top
    except (RDLCompileError, OSError) as error:
        raise DescriptionError("\n".join(messages.texts) or str(error)) from None
    if messages.texts:
        raise DescriptionError("\n".join(messages.texts))
    return top


class _Messages(MessagePrinter):
    """Keeps the messages of the compiler, each as file name, line and text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def print_message(self, severity: Severity, text: str, src_ref: SourceRefBase | None) -> None:
        where = (
            f"{Path(src_ref.path).name}:{getattr(src_ref, 'line', '?')}: " if isinstance(src_ref, FileSourceRef) else ""
        )
        self.texts.append(f"{where}{text}")


def describe(top: AddrmapNode) -> Description:
    """Description of a compiled address map; raises DescriptionError for what the register bank cannot build."""
    registers: list[Register] = []
    arrays: dict[str, Array] = {}
    _check_properties(top, BLOCK_PROPERTIES)
    for child in top.children(unroll=True):
        array = None
        if isinstance(child, (RegNode, RegfileNode)) and child.is_array:
            array = _array(child)
            arrays.setdefault(array.name, array)
        if isinstance(child, RegNode):
            registers.append(_register(child, child, array))
        elif isinstance(child, RegfileNode):
            _check_properties(child, BLOCK_PROPERTIES)
            for inner in child.children(unroll=False):
                if not isinstance(inner, RegNode) or inner.is_array:
                    raise DescriptionError(
                        f"{inner.get_path()}: a register file holds single registers and nothing else"
                    )
                registers.append(_register(inner, child, array))
        else:
            raise DescriptionError(
                f"{child.get_path()}: an address map holds registers and register files, nothing else"
            )
    registers.sort(key=lambda register: register.address)
    names = [register.member_of(field) for register in registers for field in register.fields]
    names += [f"{register.member}_written" for register in registers if register.announced]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DescriptionError(f"two fields would have the name {twice[0]!r}")
    return Description(top.inst_name, top.get_property("name"), _text(top), tuple(registers), arrays)


def _array(node: RegNode | RegfileNode) -> Array:
    dimensions = node.array_dimensions or []
    if len(dimensions) != 1:
        raise DescriptionError(f"{node.get_path()}: an array has one dimension, not {len(dimensions)}")
    stride = node.array_stride or 0
    base = node.raw_absolute_address
    return Array(node.inst_name, node.get_property("name"), _text(node), base, dimensions[0], stride)


def _register(node: RegNode, outer: RegNode | RegfileNode, array: Array | None) -> Register:
    path = node.get_path()
    _check_properties(node, BLOCK_PROPERTIES)
    for width in ("regwidth", "accesswidth"):
        if node.get_property(width) != REGISTER_BITS:
            raise DescriptionError(f"{path}: {width} is {node.get_property(width)}; it must be {REGISTER_BITS}")
    if node.external or node.is_alias:
        raise DescriptionError(f"{path}: the register bank does not build external registers and aliases")
    if node.absolute_address % REGISTER_BYTES:
        raise DescriptionError(f"{path}: the address {node.absolute_address:#x} is not a multiple of {REGISTER_BYTES}")
    if node.absolute_address >= 1 << ADDRESS_BITS:
        raise DescriptionError(f"{path}: the address {node.absolute_address:#x} has more than {ADDRESS_BITS} bits")
    fields = tuple(_field(field) for field in node.fields())
    index = outer.current_idx[0] if array is not None and outer.current_idx else 0
    names = [outer.inst_name] if outer is node else [outer.inst_name, node.inst_name]
    member = names if array is None else [names[0], str(index), *names[1:]]
    return Register(
        name="_".join(names),
        member="_".join(member),
        title=node.get_property("name"),
        desc=_text(node),
        address=node.absolute_address,
        fields=fields,
        array=array.name if array else None,
        index=index,
    )


def _field(node: FieldNode) -> Field:
    path = node.get_path()
    _check_properties(node, FIELD_PROPERTIES)
    access = node.get_property("sw"), node.get_property("hw")
    role = _ROLES.get(access)
    if role is None or (role == Role.PULSE) != node.get_property("singlepulse"):
        pulse = ", singlepulse" if node.get_property("singlepulse") else ""
        known = "r/na (constant), r/w (input), rw/r (storage), w/r with singlepulse (pulse)"
        raise DescriptionError(f"{path}: sw/hw is {access[0].name}/{access[1].name}{pulse}; there are {known}")
    reset = node.get_property("reset")
    if reset is not None and not isinstance(reset, int):
        raise DescriptionError(f"{path}: the reset value must be a number")
    if role == Role.INPUT and reset is not None:
        raise DescriptionError(f"{path}: an input has no reset value")
    if role == Role.CONSTANT and reset is None:
        raise DescriptionError(f"{path}: a constant needs a reset value")
    announced, lock = node.get_property("swmod"), node.get_property("swwel")
    if (announced or lock is not False) and role in (Role.CONSTANT, Role.INPUT):
        raise DescriptionError(f"{path}: swmod and swwel are for fields that software writes")
    locked_by = None
    if lock is not False:
        if not isinstance(lock, FieldNode) or lock.parent.get_path() != node.parent.get_path():
            raise DescriptionError(f"{path}: swwel must name a field of the same register")
        if _ROLES.get((lock.get_property("sw"), lock.get_property("hw"))) != Role.INPUT:
            raise DescriptionError(f"{path}: swwel must name an input")
        locked_by = lock.inst_name
    encode = node.get_property("encode")
    choices = tuple(Choice(c.name, c.value, _words(c.rdl_desc)) for c in encode) if encode else ()
    return Field(node.inst_name, _text(node), node.lsb, node.width, role, reset, announced, locked_by, choices)


def _check_properties(node: AddressableNode | FieldNode, known: set[str]) -> None:
    for name in node.list_properties():
        if name not in known:
            raise DescriptionError(f"{node.get_path()}: the register bank does not build the property {name!r}")


def _text(node: AddressableNode | FieldNode) -> str:
    return _words(node.get_property("desc"))


def _words(text: str | None) -> str:
    return " ".join((text or "").split())
