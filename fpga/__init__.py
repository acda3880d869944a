"""Boards and what they need: the memory of a device, the flow to a bitstream, reports of area and speed."""
