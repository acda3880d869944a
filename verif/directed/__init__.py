"""Directed rounds: what random traffic meets too seldom, driven at the node on purpose, every answer checked.

Each begins with a reset, works on any configuration, and raises what a MessageCheck and the harness raise.

Used by: verif.test_directed, verif.coverage.
"""

from .lives import (
    deadlines,
    drop_storm,
    leases,
    long_time,
    moving_session,
    numbers_ahead,
    sessions,
    slots_that_are_read,
)
from .messages import crowded_answers, foreign_ports, junk, members, odd_keys, strided_reads, uneven_payloads
from .operator import drain, event_ring, every_register, poison, ports_down, reads_cut_off, retired_models, settings
from .stage import Checker, Round

__all__ = ["ROUNDS", "Checker", "Round"]

ROUNDS: dict[str, Round] = {
    function.__name__: function
    for function in (
        every_register, event_ring, drain, ports_down, reads_cut_off, poison, retired_models, settings, junk,
        crowded_answers, uneven_payloads, strided_reads, odd_keys, drop_storm, leases, sessions, numbers_ahead,
        deadlines, slots_that_are_read, foreign_ports, members, long_time, moving_session,
    )
}  # fmt: skip
