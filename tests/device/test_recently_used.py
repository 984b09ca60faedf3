"""The mapping with an end."""

import threading

import pytest

from ort_sdk.device.recently_used import RecentlyUsed


def test_what_was_used_least_recently_goes():
    kept = RecentlyUsed(3)
    for key in "abc":
        kept[key] = key.upper()
    assert kept.get("a") == "A"
    kept["d"] = "D"
    assert [kept.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    kept["a"] = "changed"
    kept["e"] = "E"
    assert [kept.get(key) for key in "acde"] == ["changed", None, "D", "E"]
    assert len(kept) == 3


def test_what_goes_may_use_the_mapping():
    kept = RecentlyUsed(1)
    ended = []

    class Value:
        def __del__(self):
            ended.append(kept.get("b"))

    kept["a"] = Value()
    kept["b"] = "B"
    assert ended == ["B"]


def test_threads():
    kept, wrong = RecentlyUsed(5), []

    def work(seed):
        for number in range(3000):
            key = (seed + number) % 11
            found = kept.get(key)
            if found is None:
                kept[key] = 2 * key
            elif found != 2 * key:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(kept) == 5


@pytest.mark.parametrize("most", [1, 7])
def test_it_has_an_end(most):
    kept = RecentlyUsed(most)
    for key in range(100):
        kept[key] = key
    assert len(kept) == most
