from __future__ import annotations

from typing import Any, final

import pytest

from forerun.core.learned import Learned, Learning, joined, learned_by, numbers


@final
class Count(Learned):
    def as_data(self) -> int:
        return 3

    def recall(self, data: Any) -> None: ...


def test_a_factory_of_methods_that_learn_makes_what_it_is_given() -> None:
    made = Learning(lambda a, b=2: (a, b), {"count": Count()})
    assert (made(1), made(1, b=5)) == ((1, 2), (1, 5))
    assert (made.choice, made.keep_as) == ("", "")


def test_what_factories_learn_is_found_by_their_names() -> None:
    own, other = Count(), Count()
    first, second = Learning(list, {"count": own}), Learning(list, {"count": other})
    assert learned_by(first) == {"count": own}
    assert learned_by(list) == {}
    assert joined(first=first, second=second, third=list) == {"first count": own, "second count": other}


def test_kept_numbers_are_a_list_of_so_many() -> None:
    assert numbers([1, 2.5], 2) == [1.0, 2.5]
    assert numbers([-1], 1, least=-2) == [-1.0]


@pytest.mark.parametrize(
    "data", [None, "ab", [1], [1, 2, 3], [1, "2"], [1, None], [1, True], [1, -1], [1, float("nan")], [1, float("inf")]]
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="kept"):
        numbers(data, 2)
