"""Samples prompts from the model itself: it gets its own chat template up to the user's turn, and writes that turn.

So the prompts are like those that the model was tuned on, and no data set is needed. Source: Xu et al., Magpie, arXiv
2406.08464.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engine.engine import Engine
from ...engine.prompts.questions import has_chat_template, read_questions
from ...engine.request import RequestOptions
from ...errors import UnsupportedOption
from ...jsonl import Lines
from .turns import MARK, plain_ids, rendered

# Batches of attempts between two writes: the last requests of a wave run in small batches, and a kill loses a wave.
WAVE = 4
# After so many waves without a new prompt no more are to be expected.
BARREN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """How user turns are drawn. Turns that are shorter than min_tokens or don't end within max_tokens are left out.

    openings: how the turns begin, taken in turn, so that a model of short questions writes documents and sums, too; their
    tokens don't count.
    """

    temperature: float = 1.0
    top_k: int = 200
    top_p: float = 0.95
    min_tokens: int = 4
    max_tokens: int = 128
    seed: int = 0
    max_batch: int = 48
    openings: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not self.openings:
            raise ValueError("openings is empty; leave it out, or name at least one beginning of a user's turn")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, or all prompts are the same; got {self.temperature}")
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ValueError(f"min_tokens must be in 1..{self.max_tokens} (max_tokens), got {self.min_tokens}")


def user_turn(tokenizer: Any | None) -> tuple[list[int], int]:
    """The token ids before a user's turn, and the token that ends it. Raises UnsupportedOption without a chat template."""
    if tokenizer is None or not has_chat_template(tokenizer):
        raise UnsupportedOption("prompts are drawn from a chat template, and this model has none; bring a prompts file")
    shown = rendered(tokenizer, [{"role": "user", "content": MARK}])
    before, mark, after = shown.partition(MARK)
    end = plain_ids(tokenizer, after)
    # a turn that ends with ordinary text could end anywhere in what is written
    if not mark or not end or end[0] not in tokenizer.added_tokens_decoder:
        raise UnsupportedOption(
            "this chat template changes the user's text or ends its turn with no token of its own; bring a prompts file"
        )
    return plain_ids(tokenizer, before), end[0]


def sample_prompts(
    engine: Engine, path: Path, count: int, options: PromptOptions, exclude: Collection[str] = ()
) -> Iterator[int]:
    """Add prompts to the file until it holds `count` different ones; yields how many it holds.

    exclude: texts that must not come up, such as a benchmark's; the comparison ignores case and white space. Attempt n of
    a seed and of openings is the same prompt in every run, so a run that was killed goes on after the last attempt it
    kept. Raises ValueError where nothing new comes any more.
    """
    if count < 1:
        raise ValueError(f"the number of prompts must be at least 1, got {count}")
    turn = user_turn(engine.tokenizer)
    with Lines(path) as lines:
        seen = {plain(text) for text in exclude} | {plain(str(entry.get("prompt", ""))) for entry in lines.known}
        held = len(lines.known)
        attempt = 1 + max((_attempt(entry) for entry in lines.known), default=-1)
        yield held
        barren = 0
        while held < count:
            if barren == BARREN:
                raise ValueError(
                    f"the last {BARREN * WAVE * options.max_batch} attempts gave no new prompt, {held} are there; does this "
                    "model know its chat template? Ask for fewer, or bring a prompts file"
                )
            barren += 1
            wave = range(attempt, attempt + WAVE * options.max_batch)
            attempt = wave.stop
            for number, text in _wave(engine, turn, wave, options):
                if held < count and plain(text) not in seen:
                    seen.add(plain(text))
                    lines.write({"prompt": text, "attempt": number, "seed": options.seed})
                    held, barren = held + 1, 0
                    yield held


def _attempt(entry: Mapping[str, Any]) -> int:
    """Which attempt gave a prompt; -1 for one that is from elsewhere."""
    attempt = entry.get("attempt")
    return attempt if type(attempt) is int else -1


def _wave(
    engine: Engine, turn: tuple[list[int], int], attempts: range, options: PromptOptions
) -> Iterator[tuple[int, str]]:
    """Attempts that gave a user turn, in their order."""
    before, end = turn
    drawn: RequestOptions = {
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "max_new_tokens": options.max_tokens,
        "stop_token_ids": (end,),
        "generation_config": False,  # which is meant for the assistant's turns
    }
    ids = {text: plain_ids(engine.tokenizer, text) for text in options.openings}
    begun = [ids[options.openings[number % len(options.openings)]] for number in attempts]
    requests: list[tuple[list[int], RequestOptions]] = [
        (before + opening, {**drawn, "seed": options.seed * 1_000_003 + number})
        for number, opening in zip(attempts, begun, strict=True)
    ]
    for index, result in sorted(engine.each(requests, max_batch=options.max_batch), key=lambda one: one[0]):
        if result.finish_reason == "stop" and len(result.ids) > options.min_tokens:
            text = _text(engine.tokenizer, [*begun[index], *result.ids[:-1]]).strip()
            if text:
                yield attempts[index], text


def _text(tokenizer: Any, ids: list[int]) -> str:
    # opening and turn in one go, because some tokenizers drop the blank in front of the first token they are given
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def read_openings(file: Path) -> tuple[str, ...]:
    """One a line, kept as it stands, a space at its end too; blank lines are left out, and a byte order mark.

    Raises ValueError on a file that can't be read or holds none.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"can't read the openings file {file}: {error}") from error
    # not splitlines: an opening may hold other characters that it takes for the end of a line
    lines = tuple(line for line in text.split("\n") if line.strip())
    if not lines:
        raise ValueError(f"{file} holds no opening; write one beginning of a user's turn a line")
    return lines


def texts_of(files: Collection[Path]) -> set[str]:
    """Every user turn of some prompts files, to be excluded."""
    return {turn for file in files for question in read_questions(file) for turn in question.turns}


def plain(text: str) -> str:
    """What two texts have in common that differ in case and white space only."""
    return " ".join(text.lower().split())
