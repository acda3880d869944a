"""The eviction clock's rules as the architecture tells them: a 2-bit age, a 2-bit class."""

import pytest

from kvnode.models.spec.policy import AGE_MAX, AGE_ON_HIT, AGE_ON_INSERT, CLASS_COUNT, age_on_hit, visit

SYSTEM_PROMPT, NORMAL, PAST_THE_WINDOW, SESSION_CLOSED = range(4)


def visits_until_evicted(age, klass):
    for count in range(1, 10):
        evict, age = visit(age, klass)
        if evict:
            return count
    raise AssertionError("never evicted")


def test_ages_and_classes_fit_two_bits():
    assert (AGE_MAX, CLASS_COUNT) == (3, 4)
    assert all(0 <= age <= 3 for age in (*AGE_ON_INSERT, AGE_ON_HIT)) and len(AGE_ON_INSERT) == 4


def test_ages_are_those_of_the_decision():
    # docs/decisions/0002: new blocks enter with age 0, class 0 with 3; a hit gives 2.
    assert AGE_ON_INSERT == (3, 0, 0, 0)
    assert AGE_ON_HIT == 2


def test_hit_never_makes_a_block_older():
    assert [age_on_hit(age) for age in range(4)] == [AGE_ON_HIT if age < AGE_ON_HIT else age for age in range(4)]


@pytest.mark.parametrize("klass", [SYSTEM_PROMPT, NORMAL])
@pytest.mark.parametrize("age", range(4))
def test_block_outlives_one_visit_for_each_step_of_its_age(klass, age):
    assert visits_until_evicted(age, klass) == age + 1


def test_new_system_prompt_outlives_every_other_new_block():
    prompt, *others = [visits_until_evicted(AGE_ON_INSERT[klass], klass) for klass in range(4)]
    assert prompt == 4 and max(others) < prompt


def test_read_makes_a_normal_block_outlive_one_that_was_never_read():
    assert visits_until_evicted(AGE_ON_HIT, NORMAL) > visits_until_evicted(AGE_ON_INSERT[NORMAL], NORMAL)


@pytest.mark.parametrize("klass", [SYSTEM_PROMPT, NORMAL])
def test_visit_takes_one_from_the_age_and_evicts_at_zero(klass):
    assert [visit(age, klass) for age in range(4)] == [(True, 0), (False, 0), (False, 1), (False, 2)]


@pytest.mark.parametrize("klass", [PAST_THE_WINDOW, SESSION_CLOSED])
def test_expendable_class_goes_at_any_age(klass):
    assert all(visit(age, klass) == (True, 0) for age in range(4))
