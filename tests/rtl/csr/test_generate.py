"""What is made from the description: as committed, and all of it of one mind about addresses and masks."""

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvnode.models.spec import node_registers
from kvnode.rtl.csr import generate
from kvnode.rtl.csr.bank import BUS, RegisterBank
from kvnode.rtl.csr.description import Role, load

CHECKOUT = Path(__file__).resolve().parents[3]
IPXACT = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"


@pytest.fixture(scope="module")
def files():
    return generate.files()


def described():
    """{path as in C, without indices: (address of the first, {field: mask})} from the description."""
    return {
        path_in_c(register, ""): (register.address, {field.name: field.mask for field in register.fields})
        for register in load().registers
        if register.index == 0
    }


def path_in_c(register, index):
    if register.array is None:
        return register.name
    return f"{register.array}{index}{register.name.removeprefix(register.array).replace('_', '.', 1)}"


@pytest.mark.parametrize("name", generate.files())
def test_committed_file_is_the_generated_one(files, name):
    same = (CHECKOUT / name).read_text(encoding="utf-8") == files[name]
    assert same, f"{name} is not what `{generate.COMMAND}` writes"


def test_generated_files_are_byte_stable_and_name_no_place(files):
    assert generate.files() == files
    for name, text in files.items():
        assert str(CHECKOUT) not in text and "kvnode-csr-" not in text, name


def test_every_file_says_where_it_comes_from_or_follows_a_standard(files):
    for name, text in files.items():
        assert generate.COMMAND in text or name.endswith(".xml"), name


def test_command_writes_what_files_returns(files, tmp_path, capsys):
    assert generate.main(["--root", str(tmp_path)]) == 0
    written = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: path.read_text(encoding="utf-8") for name, path in written.items()} == files
    assert capsys.readouterr().out.split() == list(files)


def test_command_writes_browsable_pages_and_nothing_else(tmp_path, capsys):
    assert generate.main(["--root", str(tmp_path / "root"), "--html", str(tmp_path / "html")]) == 0
    assert (tmp_path / "html" / "index.html").exists() and not (tmp_path / "root").exists()
    assert capsys.readouterr().out.strip().endswith("index.html")


def test_constants_are_those_of_the_description():
    expected = {"SIZE_BYTES": load().size_bytes}
    for array in load().arrays.values():
        expected[f"{array.name}_COUNT".upper()] = array.count
        expected[f"{array.name}_STRIDE_BYTES".upper()] = array.stride_bytes
    for register in (register for register in load().registers if register.index == 0):
        expected[f"{register.name}_ADDRESS".upper()] = register.address
        for field in register.fields:
            name = register.name.upper(), field.name.upper()
            expected["_".join((*name, "MASK"))] = ((1 << field.bits) - 1) << field.lsb
            expected["_".join((*name, "SHIFT"))] = field.lsb
            if field.reset is not None:
                expected["_".join((*name, "RESET"))] = field.reset
            for choice in field.choices:
                expected["_".join((*name, choice.name.upper()))] = choice.value
    assert {name: value for name, value in vars(node_registers).items() if name.isupper()} == expected


def test_addresses_in_use_do_not_move():
    assert node_registers.ID_ADDRESS == 0 and node_registers.ID_VALUE_RESET == 0x4B564E44
    assert node_registers.MODEL_RETIRE_ADDRESS == 0x30 and node_registers.POISON_ADDRESS == 0x34
    assert node_registers.PARTITION_FREE_SLOTS_ADDRESS == 0x1040


def test_masks_of_the_header_are_those_of_the_description(files):
    found = {}
    for name, kind, value in re.findall(r"#define KVNODE_NODE__(\w+?)_(bm|bp|bw) (\w+)", files[generate.HEADER]):
        found.setdefault(name, {})[kind] = int(value, 0)
    expected = {
        "__".join((*path.upper().split("."), field.upper())): {
            "bm": mask,
            "bp": (mask & -mask).bit_length() - 1,
            "bw": mask.bit_count(),
        }
        for path, (_, fields) in described().items()
        for field, mask in fields.items()
    }
    assert found == expected


@pytest.mark.parametrize("compiler, language", [("gcc", "c"), ("g++", "c++")])
def test_compiled_header_has_the_addresses_of_the_description(tmp_path, compiler, language):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    paths = {path_in_c(register, f"[{register.index}]"): register.address for register in load().registers}
    lines = [f'printf("%zu\\n", offsetof(kvnode_node_t, {path}));' for path in paths]
    source = tmp_path / "offsets.txt"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        f'#include "{Path(generate.HEADER).name}"\nint main(void) {{\n{chr(10).join(lines)}\nreturn 0; }}\n'
    )
    program = tmp_path / "offsets"
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-x", language, "-I", str((CHECKOUT / generate.HEADER).parent)]
    subprocess.run([*command, str(source), "-o", str(program)], check=True, timeout=60)
    out = subprocess.run([str(program)], check=True, timeout=10, capture_output=True, text=True).stdout
    assert dict(zip(paths, map(int, out.split()), strict=True)) == paths


def test_ipxact_has_the_addresses_and_masks_of_the_description(files):
    block = next(ElementTree.fromstring(files[generate.IPXACT].encode()).iter(f"{IPXACT}addressBlock"))

    def number(element, name):
        return int(element.findtext(f"{IPXACT}{name}").replace("'h", "0x"), 0)

    def registers(element, path, base):
        for child in element:
            name, offset = child.findtext(f"{IPXACT}name"), child.find(f"{IPXACT}addressOffset")
            if offset is None:
                continue
            address = base + number(child, "addressOffset")
            if child.tag == f"{IPXACT}registerFile":
                yield from registers(child, f"{path}{name}.", address)
                continue
            fields = {
                field.findtext(f"{IPXACT}name"): (1 << number(field, "bitWidth")) - 1 << number(field, "bitOffset")
                for field in child.iter(f"{IPXACT}field")
            }
            yield f"{path}{name}", (address, fields)

    assert dict(registers(block, "", 0)) == described()
    counts = {array.name: array.count for array in load().arrays.values()}
    dims = {parent.findtext(f"{IPXACT}name"): parent for parent in block if parent.find(f"{IPXACT}dim") is not None}
    assert {name: number(parent, "dim") for name, parent in dims.items()} == counts


def test_page_has_the_addresses_and_masks_of_the_description(files):
    page = files[generate.PAGE]
    overview = re.findall(r"^\| `(0x\w+)(?: \+ (0x\w+) i)?` \| \[`([\w.\[\]]+)`\]\(#(\w+)\) \|", page, re.MULTILINE)
    sections = re.split(r"^## (\S+)$", page, flags=re.MULTILINE)[1:]
    fields = {}
    for path, text in zip(sections[::2], sections[1::2]):
        rows = re.findall(r"^\| (\d+)(?::(\d+))? \| `(\w+)` \|", text, re.MULTILINE)
        fields[path] = {name: (2 << int(high)) - (1 << int(low or high)) for high, low, name in rows}
    found = {path.replace("[i]", ""): (int(address, 0), fields[path]) for address, _, path, _ in overview}
    assert found == described()
    strides = {int(stride, 0) for _, stride, _, _ in overview if stride}
    assert strides == {array.stride_bytes for array in load().arrays.values()}
    assert all(f'<a id="{anchor}"></a>' in page for *_, anchor in overview)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_members_of_the_bank_are_the_fields_of_the_description():
    description = load()
    resets = {
        register.member_of(field): 0
        for register in description.registers
        for field in register.fields
        if field.role == Role.STORAGE and field.reset is None
    }
    members = RegisterBank(description, resets=resets).signature.members
    found = {name: len(member.shape) if hasattr(member.shape, "__len__") else member.shape for name, member in
             members.items() if name not in {name for name, *_ in BUS} and not name.endswith("_written")}  # fmt: skip
    expected = {
        register.member_of(field): field.mask.bit_count()
        for register in description.registers
        for field in register.fields
        if field.role != Role.CONSTANT
    }
    assert found == expected
    written = {name for name in members if name.endswith("_written")}
    assert written == {"model_retire_written", "poison_written"}
