"""Every file made from the description of the node's registers: `python -m kvnode.rtl.csr.generate`.

The files are committed and byte-stable: no date, no path of the machine. `--html DIR` writes browsable pages instead,
which are not committed.
"""

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path

from peakrdl_cheader.exporter import CHeaderExporter
from peakrdl_html.exporter import HTMLExporter
from peakrdl_ipxact.exporter import IPXACTExporter, Standard
from systemrdl.node import AddrmapNode

from .description import NODE, Description, Field, Register, Role, compile_file, describe

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = "python -m kvnode.rtl.csr.generate"

HEADER = "rtl/csr/generated/kvnode_node.h"
IPXACT = "rtl/csr/generated/kvnode_node.xml"
PAGE = "docs/registers/node.md"
CONSTANTS = "models/spec/node_registers.py"

PAGE_COLUMNS = 120
LEGEND = (
    "Access: R is read, W is written, P is written with 1 for one cycle of effect and reads 0. The reset value"
    " *configuration* comes from the configuration of the node; *hardware*: the node says what the field reads."
)


def files() -> dict[str, str]:
    """Texts of all generated files, by their path in the checkout."""
    top = compile_file(NODE)
    description = describe(top)
    return {
        HEADER: header(top),
        IPXACT: ipxact(top, description),
        PAGE: page(description),
        CONSTANTS: constants(description),
    }


def header(top: AddrmapNode) -> str:
    """C and C++ header: a packed struct of the registers; mask, position, width and reset value of each field."""
    with tempfile.TemporaryDirectory(prefix="kvnode-csr-") as folder:
        path = Path(folder) / Path(HEADER).name
        CHeaderExporter().export(top, str(path))
        text = path.read_text(encoding="utf-8")
    return f"// Registers of a node. Made from rtl/csr/node.rdl by `{COMMAND}`: change it there.\n{text}"


def ipxact(top: AddrmapNode, description: Description) -> str:
    """IP-XACT (IEEE 1685-2014) component with the memory map of the node."""
    version = next(register for register in description.registers if register.name == "version")
    numbers = {field.name: field.reset for field in version.fields}
    with tempfile.TemporaryDirectory(prefix="kvnode-csr-") as folder:
        path = Path(folder) / Path(IPXACT).name
        exporter = IPXACTExporter(
            standard=Standard.IEEE_1685_2014,
            vendor="kvnode",
            library="kvnode",
            version=f"{numbers['major']}.{numbers['minor']}.{numbers['patch']}",
        )
        exporter.export(top, str(path))
        return path.read_text(encoding="utf-8")


def html(folder: Path) -> None:
    """Browsable pages of the registers in a folder."""
    HTMLExporter(generate_source_links=False).export(compile_file(NODE), str(folder))


def firsts(description: Description) -> list[Register]:
    """The registers, of an array only those of its first element."""
    return [register for register in description.registers if register.index == 0]


def constants(description: Description) -> str:
    """Python module of the addresses, masks and shifts."""
    lines = [
        '"""Registers of a node: byte addresses, and the place and the fixed reset value of every field.',
        "",
        f"Made from rtl/csr/node.rdl by `{COMMAND}`: change it there.",
        "",
        "`R_ADDRESS` is the address of register R, of the first one for an array. Field F of it is",
        "`(word & R_F_MASK) >> R_F_SHIFT`, and `R_F_RESET` after a reset. Array A has `A_COUNT` elements,",
        "`A_STRIDE_BYTES` from one to the next.",
        "",
        "Used by: sw_driver, verif.",
        '"""',
        "",
        f"SIZE_BYTES = {_hex(description.size_bytes, 4)}",
    ]
    for array in description.arrays.values():
        lines.append(f"{array.name.upper()}_COUNT = {array.count}")
        lines.append(f"{array.name.upper()}_STRIDE_BYTES = {_hex(array.stride_bytes)}")
    for register in firsts(description):
        name = register.name.upper()
        lines += ["", f"#: {register.title}.", f"{name}_ADDRESS = {_hex(register.address, 4)}"]
        for field in register.fields:
            lines.append(f"{name}_{field.name.upper()}_MASK = {_hex(field.mask)}")
            lines.append(f"{name}_{field.name.upper()}_SHIFT = {field.lsb}")
            if field.reset is not None:
                lines.append(f"{name}_{field.name.upper()}_RESET = {_hex(field.reset)}")
            for choice in field.choices:
                lines.append(f"{name}_{field.name.upper()}_{choice.name.upper()} = {choice.value}")
    return "\n".join(lines) + "\n"


def page(description: Description) -> str:
    """Markdown page: a table of all registers, then a table of the fields of each one."""
    lines = [
        f"# {description.title}",
        "",
        f"<!-- Made from rtl/csr/node.rdl by `{COMMAND}`: change it there. -->",
        "",
        _wrapped(description.desc),
        "",
        "| address | register | access | what |",
        "|---|---|---|---|",
    ]
    for register in firsts(description):
        link = f"[`{_path(description, register)}`](#{register.name})"
        lines.append(f"| `{_address(description, register)}` | {link} | {_access(register)} | {register.title} |")
    lines += ["", _wrapped(LEGEND)]
    for array in description.arrays.values():
        place = f"{array.count} elements at `{_hex(array.address, 4)}`, `{_hex(array.stride_bytes)}` bytes apart"
        lines += ["", _wrapped(f"**`{array.name}`**, {place}: {array.desc}")]
    for register in firsts(description):
        lines += [
            "",
            f'<a id="{register.name}"></a>',
            "",
            f"## {_path(description, register)}",
            "",
            _wrapped(f"Address `{_address(description, register)}`. {register.desc}"),
            "",
            "| bits | field | access | reset | what |",
            "|---|---|---|---|---|",
            *(_field_row(field) for field in sorted(register.fields, key=lambda field: -field.lsb)),
        ]
    return "\n".join(lines) + "\n"


_ACCESS = {Role.CONSTANT: "R", Role.INPUT: "R", Role.STORAGE: "RW", Role.PULSE: "P"}


def _field_row(field: Field) -> str:
    high = field.lsb + field.bits - 1
    bits = f"{field.lsb}" if field.bits == 1 else f"{high}:{field.lsb}"
    reset = "hardware" if field.role == Role.INPUT else "configuration"
    what = [field.desc, *(f"{choice.value} is *{choice.name}*: {choice.desc}" for choice in field.choices)]
    if field.locked_by:
        what.append(f"Cannot be written while `{field.locked_by}` is 1.")
    reset = f"`{_hex(field.reset)}`" if field.reset is not None else reset
    return f"| {bits} | `{field.name}` | {_ACCESS[field.role]} | {reset} | {' '.join(what)} |"


def _access(register: Register) -> str:
    letters = {letter for field in register.fields for letter in _ACCESS[field.role]}
    return "".join(letter for letter in "RWP" if letter in letters)


def _path(description: Description, register: Register) -> str:
    if register.array is None or register.array == register.name:
        return register.name + ("[i]" if register.array else "")
    return f"{register.array}[i].{register.name.removeprefix(f'{register.array}_')}"


def _address(description: Description, register: Register) -> str:
    if register.array is None:
        return _hex(register.address, 4)
    return f"{_hex(register.address, 4)} + {_hex(description.arrays[register.array].stride_bytes)} i"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def _hex(value: int, digits: int = 1) -> str:
    return f"0x{value:0{digits}X}"


def main(arguments: list[str] | None = None) -> int:
    """Command line: writes the files and prints their paths; returns the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="the files made from the register description")
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="the checkout to write into (default: this one)")
    parser.add_argument("--html", type=Path, metavar="DIR", help="write browsable pages to DIR and nothing else")
    options = parser.parse_args(arguments)
    if options.html:
        html(options.html)
        print(options.html / "index.html")
        return 0
    for name, text in files().items():
        path = options.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
