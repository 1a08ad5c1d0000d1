import pytest

from forerun import errors
from forerun.errors import ForerunError, InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption


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
