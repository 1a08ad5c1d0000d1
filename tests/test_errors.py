import pytest

from forerun import errors
from forerun.errors import ForerunError, InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption, reason_of


@pytest.mark.parametrize("kind", [InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption])
def test_every_error_is_a_forerun_error_and_a_value_error(kind: type[Exception]) -> None:
    assert issubclass(kind, ForerunError)
    assert issubclass(kind, ValueError)


def test_every_error_is_in_the_table_at_the_top_of_its_module() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert len(kinds) >= 5
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")
        assert kind.__doc__


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("so:\n  it is"), "so: it is"),
        (ValueError("\n so:\n\n it   is\nand more"), "so: it is"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_is_told_in_a_sentence(error: Exception, said: str) -> None:
    assert reason_of(error) == said
