"""forerun chat: a conversation in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...engine.methods import DEFAULT_DRAFTER
from ...errors import UnsupportedOption
from ..flags import request_flags, request_of, takes
from ..generate import summary, tell_sampling
from ..method import method_flags
from ..shared_options import OPENING, RESERVED, Drafter, Model, Policy
from ..system_choice import SystemFile, choice_of
from ..terminal import note, show, write
from ..threads import THREADS
from .commands import COMMANDS, command_of
from .lines import interruptible, lines

if TYPE_CHECKING:
    from ...engine.answer import Piece
    from .conversation import Conversation

# a chat shows texts alone, and what to expect of an answer is another thing each turn
WITHOUT = ("logprobs", "processed_logprobs", "prediction")


@takes(*OPENING, THREADS, *request_flags(WITHOUT), *method_flags(RESERVED))
def chat(
    context: typer.Context,
    model: Model,
    drafter: Drafter = DEFAULT_DRAFTER,
    policy: Policy = None,
    system: SystemFile = None,
    system_prompt: Annotated[str | None, typer.Option(help="A system message before the conversation.")] = None,
    **given: Any,
) -> None:
    """Talk to a model. In a terminal, the tokens that were drafted and accepted are green.

    Ctrl-C ends an answer. /speculate off turns drafting off, /stats tells what it gave, /reset begins anew, /quit ends.
    Without a terminal each line of stdin is answered. An answer has up to 1024 tokens unless told otherwise.
    """
    choice, request = choice_of(system, drafter, policy, context, given), request_of(given)
    from ...engine.prompts.questions import has_chat_template
    from .conversation import Conversation

    engine = choice.open(model)
    if not has_chat_template(engine.tokenizer):
        raise UnsupportedOption("a chat needs a chat template, which this model has none of; use forerun generate")
    if request["generation_config"] and not {"temperature", "do_sample"} & {*request}:
        tell_sampling(engine.checkpoint_defaults)
    before = () if system_prompt is None else ({"role": "system", "content": system_prompt},)
    talk = Conversation(engine, request, before)
    note(f"{engine.name or model}; {', '.join(COMMANDS)}")
    for line in lines():
        if line.startswith("/"):
            if not command_of(line.strip(), talk):
                return
        elif text := line.strip():
            _answer(talk, text)


def _answer(talk: Conversation, text: str) -> None:
    def shown(piece: Piece) -> None:
        write(piece.text, piece.drafted)

    try:
        with interruptible() as stopped:
            result, seconds = talk.ask(text, shown, stopped)
    except ValueError as error:
        note(f"{error}{'; /reset begins anew' if talk.turns else ''}")
        return
    show()
    note("stopped" if result is None else summary(result, seconds))
