"""The two-choice index against a naive one with real rows of tags."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvnode.models.golden.index import Index
from kvnode.models.spec.messages import NUMBERED


class NaiveIndex:
    """Two tables of rows of ways, each way None or (tag, slot); searched way by way."""

    def __init__(self, rows_log2, ways):
        self.mask = (1 << rows_log2) - 1
        self.tables = [[[None] * ways for _ in range(1 << rows_log2)] for _ in range(2)]

    def rows(self, pair):
        row, tag = pair
        return row, (row ^ tag ^ tag // 2048) & self.mask

    def hits(self, pair):
        """Slots of all entries of the candidate rows with the pair's tag."""
        return [
            entry[1]
            for table, row in enumerate(self.rows(pair))
            for entry in self.tables[table][row]
            if entry and entry[0] == pair[1]
        ]

    def choose(self, pair):
        rows = self.rows(pair)
        counts = [sum(entry is not None for entry in self.tables[table][row]) for table, row in enumerate(rows)]
        table = 1 if counts[1] < counts[0] else 0
        ways = self.tables[table][rows[table]]
        return (table, rows[table], ways.index(None)) if None in ways else None


class IndexMachine(RuleBasedStateMachine):
    @initialize(rows_log2=st.integers(0, 3), ways=st.sampled_from([2, 4, 8]), tag_bits=st.integers(2, 14))
    def start(self, rows_log2, ways, tag_bits):
        self.index, self.naive = Index(rows_log2, ways, tag_bits, seed=1), NaiveIndex(rows_log2, ways)
        self.row_bits, self.tag_bits = rows_log2, tag_bits
        self.entries = {}
        self.next_slot = 0

    def pair(self, data):
        few = min(self.tag_bits, 4)
        tag = data.draw(st.integers(0, (1 << few) - 1)) << data.draw(st.integers(0, self.tag_bits - few))
        return data.draw(st.integers(0, (1 << self.row_bits) - 1)), tag

    @rule(data=st.data())
    def insert(self, data):
        pair = self.pair(data)
        where = self.index.choose(pair)
        assert where == self.naive.choose(pair)
        if where is None or self.index.find(pair) is not None:
            return
        table, row, way = where
        assert self.naive.tables[table][row][way] is None
        self.index.insert(pair, where, self.next_slot)
        self.naive.tables[table][row][way] = pair[1], self.next_slot
        self.entries[pair] = where, self.next_slot
        self.next_slot += 1

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def remove(self, data):
        pair = data.draw(st.sampled_from(sorted(self.entries)))
        where, _ = self.entries.pop(pair)
        self.index.remove(pair, where)
        self.naive.tables[where[0]][where[1]][where[2]] = None

    @rule(data=st.data())
    def look(self, data):
        pair = self.pair(data)
        hits = self.naive.hits(pair)
        assert len(hits) <= 1, "two equal tags in one candidate pair"
        assert self.index.find(pair) == (hits[0] if hits else None)

    @invariant()
    def everything_inserted_is_found(self):
        for pair, (_, slot) in self.entries.items():
            assert self.index.find(pair) == slot
            assert self.naive.hits(pair) == [slot]
        assert len(self.index) == len(self.entries)


TestIndexEqualsANaiveOne = IndexMachine.TestCase
TestIndexEqualsANaiveOne.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def filled(count, rows_log2=0, ways=4):
    """An index with `count` entries of different tags put in one after the other, and where they went."""
    index, places = Index(rows_log2, ways, 16, seed=1), []
    for tag in range(count):
        where = index.choose((0, tag))
        index.insert((0, tag), where, 100 + tag)
        places.append(where)
    return index, places


def test_entries_go_to_the_emptier_row_and_the_first_table_on_a_tie():
    _, places = filled(6)
    assert places == [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (0, 0, 2), (1, 0, 2)]


def test_entry_takes_the_lowest_way_that_is_free():
    index, places = filled(8)
    index.remove((0, 2), places[2])
    index.remove((0, 0), places[0])
    assert index.choose((0, 99)) == (0, 0, 0)
    index.insert((0, 99), (0, 0, 0), 7)
    assert index.choose((0, 98)) == (0, 0, 1)


def test_full_pair_has_no_place():
    index, _ = filled(8)
    assert index.choose((0, 99)) is None
    assert len(index) == 8


def test_entry_is_found_until_it_is_removed():
    index, places = filled(3)
    assert [index.find((0, tag)) for tag in range(4)] == [100, 101, 102, None]
    index.remove((0, 1), places[1])
    assert [index.find((0, tag)) for tag in range(4)] == [100, None, 102, None]


def test_second_row_is_the_first_mixed_with_the_tag():
    index = Index(3, 2, 16, seed=1)
    for tag in (1, 2 << 11):
        index.insert((5, tag), (0, 5, tag & 1), tag)
    # Row 5 of the first table is full, so the second row is chosen: 5 ^ 6 = 3, and 5 ^ (3 << 11 >> 11) = 6.
    assert index.choose((5, 6)) == (1, 3, 0)
    assert index.choose((5, 3 << 11)) == (1, 6, 0)


def digests(count):
    return [random.Random(number).getrandbits(256) for number in range(count)]


@pytest.mark.parametrize(("rows_log2", "tag_bits"), [(3, 8), (9, 32), (0, 2)])
def test_place_names_a_row_and_a_tag_of_the_configured_sizes(rows_log2, tag_bits):
    index = Index(rows_log2, 8, tag_bits, seed=0x243F6A8885A308D313198A2E03707344)
    places = [index.place(digest, 1, 2, 3) for digest in digests(4000)]
    # 4000 balls into at most 512 urns leave hardly one of them empty.
    rows = {row for row, _ in places}
    assert rows <= set(range(1 << rows_log2)) and len(rows) > 0.99 * (1 << rows_log2)
    assert all(tag < 1 << tag_bits for _, tag in places)
    # 4000 balls into 2048 urns leave exp(-4000 / 2048) of them empty: 14 %.
    assert len(set(places)) > 0.8 * min(4000, 1 << rows_log2 + tag_bits)


def test_model_group_epoch_session_and_seed_each_move_a_key():
    index = Index(9, 8, 32, seed=0x243F6A8885A308D313198A2E03707344)
    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, NUMBERED | 16), (0, 0, 0, NUMBERED | 17)]
    places = {index.place(77, *key) for key in keys}
    assert len(places) == 6
    assert Index(9, 8, 32, seed=5).place(77, 0, 0, 0) not in places


def test_as_many_random_keys_as_slots_find_room():
    # The node's sizing: 512 rows of 8 ways in each table for 4096 slots.
    index = Index(9, 8, 32, seed=0x243F6A8885A308D313198A2E03707344)
    for slot, digest in enumerate(digests(4096)):
        pair = index.place(digest, 0, 0, 0)
        where = index.choose(pair)
        assert index.find(pair) is None and where is not None
        index.insert(pair, where, slot)
    assert len(index) == 4096
