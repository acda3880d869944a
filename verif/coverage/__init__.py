"""Coverage of the node's own RTL, and of what its specification says can happen.

`convert` turns the node into Verilog that knows the Amaranth line of every branch and where each named signal was
declared; Verilator counts lines and toggles in it; `data` reads what it has counted, `collect` counts what the trace,
the messages and the registers show of `plan`; `measure` runs the rounds, and `report` tells of hits, holes and the
reasons of what is left out.

A line is an Amaranth line with an assignment below `m.If`, `m.Switch` or a state, or with their condition: the others
are executed always. A bit is one of a named signal, counted once, where it is driven; it is covered when it has risen
and fallen, on any node and in any of the blocks that are there several times. Bits that can have one value only, in
that node (`tied`), the clock, resets and the cells of Amaranth's own library (queues) are not counted, nor are the
words of memories: what goes in and what comes out is.
"""
