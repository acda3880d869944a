"""The management registers: one description in SystemRDL, the hardware and every other file made from it."""
