"""Records of raw events, and what is said when some are missing."""

import pytest

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.config import preset
from kvnode.models.spec.events import EVENT, EventType
from kvnode.sw_driver import events
from kvnode.sw_driver.events import EventReader, Lost, record_of
from kvnode.sw_driver.transport import RawEvent

SIM = preset("sim")


def raw(sequence, overflow=False, **fields):
    return RawEvent(sequence, overflow, dict.fromkeys(EVENT.fields, 0) | {"type": int(EventType.STORED)} | fields)


class Ring:
    """A transport that has only these events."""

    config = SIM

    def __init__(self, *batches):
        self._batches = iter(batches)

    def events(self):
        return next(self._batches)


def numbers(records):
    return [("lost", r.sequence, r.count) if isinstance(r, Lost) else r.sequence for r in records]


def test_block_is_told_in_the_words_of_kv_events():
    record = record_of(SIM, raw(7, partition=2, model_id=3, group=4, private=1, slot=5, generation=6, length=2,
                                cycle=8, digest=0x0102))  # fmt: skip
    assert (record.sequence, record.cycle, record.partition, record.model_id, record.group_idx) == (7, 8, 2, 3, 4)
    assert record.block_hashes == (b"\2\1" + bytes(30),)
    assert (record.private, record.slot, record.generation, record.size_bytes) == (True, 5, 6, 64)
    assert (record.parent_block_hash, record.token_ids, record.block_size) == (None, (), 0)
    assert (record.lora_id, record.lora_name, record.medium) == (None, None, "KVNODE")


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause])
def test_removal_tells_its_reason(cause):
    assert record_of(SIM, raw(0, type=int(EventType.REMOVED), cause=int(cause))).reason == cause


def test_new_owner_of_a_session_is_the_port_that_asked_where_no_ports_were_named():
    fields = {"type": int(EventType.SESSION_MOVED), "session": 9, "generation": 1, "owner": 3}
    assert record_of(SIM, raw(0, **fields)).ports == (3,)
    assert record_of(SIM, raw(0, slot=0b0101, **fields)).ports == (0, 2)


def test_ports_of_a_port_down_are_those_of_the_mask():
    assert record_of(SIM, raw(0, type=int(EventType.PORT_DOWN), slot=0b1010)).ports == (1, 3)


def test_type_of_a_later_version_is_refused():
    with pytest.raises(ValueError, match="200"):
        record_of(SIM, raw(0, type=200))


def test_gap_is_told_where_it_is():
    reader = EventReader(Ring([raw(0), raw(1), raw(5), raw(6)], [raw(7)]))
    assert numbers(reader.poll()) == [0, 1, ("lost", 2, 3), 5, 6]
    assert numbers(reader.poll()) == [7]


def test_gap_between_two_polls_is_told():
    reader = EventReader(Ring([raw(0)], [raw(3)]))
    reader.poll()
    assert numbers(reader.poll()) == [("lost", 1, 2), 3]


def test_loss_behind_the_last_event_is_told_once():
    reader = EventReader(Ring([raw(0, True), raw(1, True)], [raw(9)], [raw(12)]))
    assert numbers(reader.poll()) == [0, 1, ("lost", 2, None)]
    assert numbers(reader.poll()) == [9]
    assert numbers(reader.poll()) == [("lost", 10, 2), 12]


def test_overflow_that_a_gap_explains_is_not_told_again():
    reader = EventReader(Ring([raw(0, True), raw(4, True)], [raw(5)]))
    assert numbers(reader.poll()) == [0, ("lost", 1, 3), 4]
    assert numbers(reader.poll()) == [5]


def test_reset_starts_the_numbers_anew():
    reader = EventReader(Ring([raw(0), raw(1)], [raw(0, type=int(EventType.CLEARED)), raw(1)]))
    reader.poll()
    cleared, stored = reader.poll()
    assert isinstance(cleared, events.AllBlocksCleared) and stored.sequence == 1


def test_numbers_wrap_around():
    reader = EventReader(Ring([raw(0)], [raw(0xFFFFFFFF, type=int(EventType.CLEARED)), raw(0), raw(2)]))
    reader.poll()
    assert numbers(reader.poll()) == [0xFFFFFFFF, 0, ("lost", 1, 1), 2]
