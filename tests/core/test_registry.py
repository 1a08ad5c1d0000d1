import pytest

from forerun.core.registry import Registry
from forerun.errors import UnsupportedOption


def registry() -> Registry:
    methods: Registry = Registry("method")

    @methods("plain", source="Nobody, arXiv 0000.00000")
    def plain(parts: object) -> str:
        """Do nothing.

        At length.
        """
        return "plain"

    @methods("paced", source="Somebody")
    def paced(parts: object, *, k: int = 5, slow: bool = False) -> str:
        return f"paced {k} {slow}"

    @methods("wrapped", source="Somebody else")
    def wrapped(parts: object, *, inner: str = "plain", **options: object) -> str:
        return inner

    return methods


def test_names_are_sorted() -> None:
    assert registry().names == ("paced", "plain", "wrapped")


def test_an_entry_tells_its_summary_source_and_options() -> None:
    plain, paced = registry().entry("plain"), registry().entry("paced")
    assert (plain.name, plain.summary, plain.source, dict(plain.options)) == (
        "plain",
        "Do nothing.",
        "Nobody, arXiv 0000.00000",
        {},
    )
    assert {name: option.default for name, option in paced.options.items()} == {"k": 5, "slow": False}
    assert paced.options["k"].annotation is int
    assert paced.summary == ""


def test_a_registered_function_stays_itself() -> None:
    assert registry().entry("paced").build(None, k=2) == "paced 2 False"


def test_known_options_pass() -> None:
    assert registry().check("paced", {"k": 3}).name == "paced"


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match="unknown method 'fast'; known: paced, plain, wrapped"):
        registry().check("fast", {})


def test_an_unknown_option_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedOption, match="method 'paced' has no option 'n'; its options: k, slow"):
        registry().check("paced", {"k": 3, "n": 1})
    with pytest.raises(UnsupportedOption, match="method 'plain' has no option 'n'; its options: none"):
        registry().check("plain", {"n": 1})


def test_a_wrapper_takes_the_options_of_what_it_wraps() -> None:
    entry = registry().check("wrapped", {"inner": "paced", "k": 3})
    assert entry.passes_options_on
    assert list(entry.options) == ["inner"]
    assert not registry().entry("paced").passes_options_on


def test_a_name_can_be_taken_once() -> None:
    methods = registry()
    with pytest.raises(ValueError, match="method 'plain' is registered already"):
        methods("plain", source="again")(lambda: None)


def test_an_option_without_a_default_is_needed() -> None:
    methods = registry()

    @methods("demanding", source="")
    def demanding(parts: object, *, model: str) -> None:
        """Draft with another model."""

    with pytest.raises(UnsupportedOption, match="method 'demanding' needs option 'model': Draft with another model"):
        methods.check("demanding", {})
    assert methods.check("demanding", {"model": "other"}).name == "demanding"
