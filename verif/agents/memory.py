"""The other memory: a read of the address being written may return the old word or the new one, so benches run on both.

Used by: benches of blocks that read and write a memory in one cycle.
"""

from amaranth.hdl import Elaboratable

from kvnode.rtl.memory import RAM_VERILOG

from ..runner import verilog_of

__all__ = ["WORDS", "verilog_with"]

WORDS = ("old", "new")
_OLD = "read_data <= memory[read_address];"
_NEW = "read_data <= write_enable && write_address == read_address ? write_data : memory[read_address];"


def verilog_with(words: str, component: Elaboratable) -> str:
    """Verilog of a component whose memories return the words of that kind ("old", as kvnode.rtl.memory's, or "new")."""
    if words not in WORDS:
        raise ValueError(f"words {words!r}: there are {', '.join(WORDS)}")
    text = verilog_of(component)
    if words == "old":
        return text
    assert _OLD in RAM_VERILOG and RAM_VERILOG in text
    return text.replace(RAM_VERILOG, RAM_VERILOG.replace(_OLD, _NEW))
