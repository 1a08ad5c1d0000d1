"""The page in a browser: a conversation, its drafts in colour, and the same text without them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Event
from typing import Any, final

import pytest

from forerun import Engine, load
from forerun.core.policy import LengthPolicy
from forerun.core.values import Step
from forerun.testing import tiny_model

from ..running import NAME, TOKENIZER, served, service

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser, and isn't installed")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium is installed, so the page isn't tried in one: apt-get install chromium"
    ),
]
TOKENS = 40
PATIENCE = 120_000  # milliseconds: a browser beside other work may be slow
WORDS = "#log .assistant .words"
KEY = "secret"


@cache
def engine() -> Engine:
    model = tiny_model("llama", vocab_size=len(TOKENIZER), eos_token_id=256, max_position_embeddings=512)
    options: Any = {"drafter_options": {"exit_layer": 3}, "policy_options": {"k": 3}}
    return load(model, TOKENIZER, "self", "fixed", **options)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(service({"self": engine(), "suffix": engine().using("suffix")})) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with shown(browser, address) as page:
        yield page


@contextmanager
def shown(browser: Any, address: str) -> Iterator[Any]:
    """The page of a server, which may ask nobody else, and in which nothing may go wrong.

    In a tab of its own: what the page of another test still asks would be taken for this one's.
    """
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    wrong: list[str] = []

    def called(request: Any) -> None:
        wrong.extend([request.url] * (not request.url.startswith(address)))

    def failed(error: Any) -> None:
        wrong.append(str(error))

    tab.on("request", called)
    tab.on("pageerror", failed)
    tab.goto(address)
    tab.locator("#most").fill(str(TOKENS))
    yield tab
    tab.close()
    assert wrong == []


def ask(page: Any, text: str) -> None:
    page.locator("#text").fill(text)
    page.keyboard.press("Enter")


def answered(page: Any, number: int = 0) -> tuple[str, str]:
    """The text of an answer, and the line below it, once it has ended."""
    note = page.locator("#log .note").nth(number)
    note.wait_for()
    tokens = page.locator(WORDS).nth(number).locator(".token:not(.rejected)")
    return "".join(tokens.evaluate_all("all => all.map(one => one.textContent)")), note.text_content()


def style(page: Any, kind: str, name: str) -> str:
    found: str = page.locator(f"{WORDS} .{kind}").first.evaluate(f"one => getComputedStyle(one).{name}")
    return found


def said(*texts: str) -> Any:
    roles = ("user", "assistant") * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return engine().generate(messages, max_new_tokens=TOKENS).text


def test_accepted_tokens_are_coloured_and_rejected_ones_struck_through(page: Any) -> None:
    page.locator("#keep").check()
    ask(page, "hello")
    text, note = answered(page)

    assert text == said("hello")
    assert re.search(rf"^{TOKENS} tokens · .*tokens/s · .*tokens a round · \d+ of \d+ drafted tokens accepted$", note)
    colours = {kind: style(page, kind, "color") for kind in ("own", "accepted", "rejected")}
    assert len(set(colours.values())) == 3
    assert style(page, "rejected", "textDecorationLine") == "line-through"
    assert style(page, "accepted", "textDecorationLine") == "none"


def test_the_strip_and_the_figures_tell_of_every_round(page: Any) -> None:
    ask(page, "hello")
    accepted, drafted = map(int, re.findall(r"(\d+) of (\d+)", answered(page)[1])[0])
    cells = {kind: page.locator(f"#strip .{kind}").count() for kind in ("round", "own", "accepted", "rejected")}

    assert cells["round"] == cells["own"] == TOKENS - accepted
    assert (cells["accepted"], cells["rejected"]) == (accepted, drafted - accepted)
    label = f"{cells['round']} rounds, {accepted} of {drafted} drafted tokens accepted"
    assert page.locator("#strip").get_attribute("aria-label") == label
    assert float(page.locator("#rate").text_content()) > 0
    assert page.locator("#acceptance").text_content() == f"{round(100 * accepted / drafted)} %"


def test_without_speculation_the_text_is_the_same(page: Any) -> None:
    ask(page, "hello")
    first, _ = answered(page)
    page.locator("#speculate").uncheck()
    assert page.locator("#method").is_disabled()
    page.locator("#again").click()
    second, note = answered(page, 1)

    assert first == second
    assert "nothing drafted · the same text as before" in note
    assert page.locator(f"{WORDS} >> nth=1").locator(".accepted, .rejected").count() == 0


def test_the_history_is_a_part_of_the_next_prompt(page: Any) -> None:
    ask(page, "hello")
    first, _ = answered(page)
    ask(page, "again")
    assert answered(page, 1)[0] == said("hello", first, "again")

    page.locator("#reset").click()
    assert page.locator("#log article").count() == 0
    ask(page, "again")
    assert answered(page)[0] == said("again")


def test_a_method_is_chosen_from_those_of_the_server(page: Any) -> None:
    methods = page.locator("#method")
    methods.wait_for()
    assert methods.locator("option").all_text_contents() == ["self", "suffix"]
    methods.select_option("suffix")
    with page.expect_request("**/v1/chat/completions") as asked:
        ask(page, "hello")
    assert answered(page)[0] == said("hello")
    assert asked.value.post_data_json["method"] == "suffix"
    assert asked.value.post_data_json["return_drafts"] is True


def test_markup_in_a_text_stays_text(page: Any) -> None:
    markup = "<img src=x onerror=alert(1)><b>bold</b>"
    ask(page, markup)
    answered(page)

    assert page.locator("#log .user .words").text_content() == markup
    assert page.locator("#log img, #log b").count() == 0


@final
class Waiting(LengthPolicy):
    """Lets the model write nothing more after a few rounds, until it may."""

    def __init__(self, may_go_on: Event) -> None:
        self._may_go_on = may_go_on
        self._rounds = 0

    def should_stop(self, steps: Sequence[Step]) -> bool:
        self._rounds += not steps
        if self._rounds > 3:
            self._may_go_on.wait(PATIENCE / 1000)
        return len(steps) >= 3


def test_escape_stops_an_answer(browser: Any) -> None:
    may_go_on = Event()  # however slow the browser is, the answer doesn't end before the key is pressed
    held = engine().using("self", lambda: Waiting(may_go_on), drafter_options={"exit_layer": 3})
    with served(service({"self": held})) as address, shown(browser, address) as page:
        try:
            ask(page, "hello")
            page.locator(f"{WORDS} .token").first.wait_for()
            page.keyboard.press("Escape")
            text, note = answered(page)
        finally:
            may_go_on.set()

    assert "stopped" in note
    assert 0 < len(text) < TOKENS
    assert said("hello").startswith(text)


def test_everything_is_reached_by_the_keyboard(page: Any) -> None:
    page.locator("#method").wait_for()
    ask(page, "hello")
    answered(page)
    page.locator("#text").focus()
    reached = [page.locator(":focus").get_attribute("id")]
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.locator(":focus").get_attribute("id"))
    assert reached == ["text", "send", "again", "speculate", "method", "keep", "temperature", "most"]


def test_what_the_server_refuses_is_told_and_can_be_sent_anew(page: Any) -> None:
    long = "x" * 600
    ask(page, long)
    alert = page.locator("#alert")
    alert.wait_for()

    assert "the context holds 512" in alert.text_content()
    assert page.locator("#text").input_value() == long
    assert page.locator("#log article").count() == 0
    ask(page, "hello")
    assert answered(page)[0] == said("hello")
    assert alert.is_hidden()


def test_a_refusal_stays_told_when_the_model_s_name_comes_late(browser: Any, address: str) -> None:
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    late: list[Any] = []
    tab.route("**/v1/models", lambda route: late.append(route))
    tab.goto(address)
    ask(tab, "x" * 600)
    tab.locator("#alert").wait_for()
    (route,) = late
    route.continue_()
    tab.get_by_text(f"{NAME},").wait_for()

    assert "the context holds 512" in tab.locator("#alert").text_content()
    tab.close()


def test_a_key_is_asked_for_where_the_server_wants_one(browser: Any) -> None:
    with served(service({"self": engine()}, api_key=KEY)) as address, shown(browser, address) as page:
        key = page.locator("#key")
        key.wait_for()
        assert "API key" in page.locator("#alert").text_content()
        key.fill(KEY)
        key.press("Tab")
        page.get_by_text(f"{NAME},").wait_for()
        ask(page, "hello")
        assert answered(page)[0] == said("hello")


def test_it_is_dark_where_the_reader_wants_that(page: Any) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colour = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
        grounds[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert grounds["light"] > 700
    assert grounds["dark"] < 100
