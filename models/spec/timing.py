"""Timing of the node as arithmetic (ARCHITECTURE sections 2 and 16). All results are cycles.

Used by: golden (the one place where order alone does not decide), bounds, rtl, benches.
"""

#: Stages of the directory pipeline between an operation's issue and the stage that names it.
INDEX_COMMIT_STAGE = 5
STATE_COMMIT_STAGE = 8
#: Cycles from an operation's turn to its answer at the port, hit or miss.
DIRECTORY_LATENCY_CYCLES = STATE_COMMIT_STAGE + 1

#: A fill row freed by an operation can be granted to operations issued at least this many cycles later: it is freed
#: where the state commits and granted where the index commits.
FILL_ROW_RELEASE_CYCLES = STATE_COMMIT_STAGE - INDEX_COMMIT_STAGE + 1

#: Own turns of the sweeper in a partition until the same look or command comes round again.
SWEEP_ROUND = 8

#: Cycles from the issue of a beat's read until its place in the port's data FIFO can be given to another, at best.
STORE_READ_CYCLES = 5

#: Answers that a port has a place for: so many requests at most have been given to the directory and are unanswered.
ANSWERS = 16
#: READs, and WRITEs, of a port that move or wait to move.
RUNS = 2
#: Cycles from a beat of a WRITE to the CRC with it.
CRC_LATENCY_CYCLES = 2
#: Cycles to move the CRC of a member's part to where it lies in the block: one loads, and 31 squarings take one each.
CRC_SHIFT_CYCLES = 32


def owner_of_turn(cycle: int, ports: int) -> int:
    """Port that owns the directory in a cycle counted from reset; `ports` itself stands for the sweeper."""
    return cycle % (ports + 1)


def bank_of_port(cycle: int, port: int, ports: int) -> int:
    """Bank that a port owns in a cycle."""
    return (port + cycle) % ports


def turn_wait_cycles(cycle: int, port: int, ports: int) -> int:
    """Cycles until the next turn of `port`, 0 when it is its turn."""
    return (port - cycle) % (ports + 1)


def data_fifo_depth(ports: int) -> int:
    """Response data FIFO that never costs a turn: one lap of the banks and the latency of a read."""
    return ports + STORE_READ_CYCLES


def payload_fifo_depth(ports: int) -> int:
    """Beats of WRITEs that wait in a port for their bank, or for the directory to take the WRITE."""
    return 4 * ports + 16
