"""The wheel's arithmetic against a wheel turned step by step."""

import pytest

from kvnode.models.spec.timing import (
    DIRECTORY_LATENCY_CYCLES,
    FILL_ROW_RELEASE_CYCLES,
    STORE_READ_CYCLES,
    bank_of_port,
    data_fifo_depth,
    owner_of_turn,
    turn_wait_cycles,
)


def turned(ports, cycles):
    """(owner, rotation) in every cycle from reset on, counted and not computed."""
    owner = rotation = 0
    for _ in range(cycles):
        yield owner, rotation
        owner = 0 if owner == ports else owner + 1
        rotation = 0 if rotation == ports - 1 else rotation + 1


@pytest.mark.parametrize("ports", [2, 4, 8, 16])
def test_wheel_turns_through_the_ports_and_the_sweeper(ports):
    for cycle, (owner, _) in enumerate(turned(ports, 100)):
        assert owner_of_turn(cycle, ports) == owner


@pytest.mark.parametrize("ports", [2, 4, 8, 16])
def test_banks_rotate_modulo_the_ports_beside_the_wheel(ports):
    for cycle, (_, rotation) in enumerate(turned(ports, 100)):
        assert [bank_of_port(cycle, port, ports) for port in range(ports)] == [
            *range(rotation, ports),
            *range(rotation),
        ]


@pytest.mark.parametrize("ports", [2, 4, 8])
def test_wait_for_a_turn_is_counted_to_the_next_one(ports):
    owners = [owner for owner, _ in turned(ports, 100)]
    for cycle in range(50):
        for owner in range(ports + 1):
            assert turn_wait_cycles(cycle, owner, ports) == owners.index(owner, cycle) - cycle


@pytest.mark.parametrize("ports", [2, 4, 8])
def test_port_meets_every_bank_once_in_a_lap_and_no_other_port(ports):
    for port in range(ports):
        assert sorted(bank_of_port(cycle, port, ports) for cycle in range(17, 17 + ports)) == list(range(ports))
    for cycle in range(ports):
        assert len({bank_of_port(cycle, port, ports) for port in range(ports)}) == ports


def test_answer_comes_nine_cycles_after_the_turn():
    assert DIRECTORY_LATENCY_CYCLES == 9


def test_fill_row_freed_at_stage_eight_is_granted_at_stage_five_of_the_fourth_operation_behind():
    # In the cycle after the commit at stage 8, the operation at stage 5 has its own commit three cycles later.
    assert FILL_ROW_RELEASE_CYCLES == 1 + (8 - 5)


def test_data_queue_holds_a_lap_of_the_banks_and_the_latency_of_a_read():
    assert [data_fifo_depth(ports) - STORE_READ_CYCLES for ports in (2, 4, 8)] == [2, 4, 8]
