"""Tests how an import divides conversations."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import SplitPlan


def test_random_division_keeps_the_percentages_and_depends_on_id_and_seed_only():
    plan = SplitPlan.parse("80/15/5")
    splits = {f"c{number}": plan.split_of_id(f"c{number}") for number in range(20_000)}
    counts = Counter(splits.values())
    assert [counts[name] / 20_000 for name in ("train", "valid", "test")] == pytest.approx([0.8, 0.15, 0.05], abs=0.01)
    assert splits == {name: plan.split_of_id(name) for name in splits}
    assert splits != {name: SplitPlan.parse("80/15/5", seed=1).split_of_id(name) for name in splits}


@pytest.mark.parametrize("text", ["80", "80/20", "80/10/20", "a/b/c", "-10/100/10", "nan/0/0"])
def test_invalid_percentages(text: str):
    with pytest.raises(CorpusError, match="--split"):
        SplitPlan.parse(text)


@given(st.dictionaries(st.text(), st.integers(0, 20).map(float), min_size=1))
def test_later_conversations_are_never_in_an_earlier_split(times: dict[str, float]):
    splits = SplitPlan.parse("60/20/20").splits_by_time(times)
    assert splits.keys() == times.keys()
    order = ["train", "valid", "test"]
    ranked = [order.index(splits[name]) for name in sorted(times, key=times.__getitem__)]
    assert ranked == sorted(ranked)
    assert all(splits[a] == splits[b] for a in times for b in times if times[a] == times[b])
