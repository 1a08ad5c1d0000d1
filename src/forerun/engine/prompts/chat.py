"""Chat messages, through a tokenizer's chat template, to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...errors import UnsupportedOption

_PROBE = "forerun"
BEGIN: Mapping[str, Any] = MappingProxyType({"add_generation_prompt": True})


def check_text(text: str, what: str) -> str:
    """The text. Raises ValueError on half of a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} holds {text[error.start]!a} at place {error.start}, half of a surrogate pair and no character; "
            "take it out, or decode the text anew"
        ) from error
    return text


def encode_messages(messages: Sequence[Any], tokenizer: Any, template: Mapping[str, Any] = BEGIN) -> list[int]:
    """Token ids of a chat, up to where the assistant begins unless template says otherwise: what the template is given.

    A content that is a list of text parts is handed through to a template that reads such lists, and joined for any other.
    Raises UnsupportedOption where the template refuses the chat or can't be read, ValueError on what is no message.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedOption("this tokenizer has no chat template; hand in text instead of messages")
    chat = [_checked(message, place) for place, message in enumerate(messages)]
    if any(isinstance(message.get("content"), list) for message in chat) and not _reads_lists(tokenizer):
        chat = [_joined(message) for message in chat]
    try:
        encoded = tokenizer.apply_chat_template(chat, **template, return_dict=True)
    except Exception as error:  # a template is a program of its own, and raises what it likes
        raise UnsupportedOption(template_failure(error)) from error
    ids: list[int] = encoded["input_ids"]
    return ids


def template_failure(error: Exception) -> str:
    """What to say where a chat template raises."""
    return f"the chat template can't be applied to these messages: {str(error).strip() or type(error).__name__}"


def _checked(message: Any, place: int) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f'message {place} must be a mapping with "role" and "content", got {type(message).__name__}')
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise ValueError(f"message {place} needs a role, such as 'user', got {role!a}")
    if content is None and not message.get("tool_calls"):
        raise ValueError(f"message {place} of role {role!r} has no content")
    if isinstance(content, str):
        check_text(content, f"message {place}")
    elif isinstance(content, list | tuple):
        return {**message, "content": [_part(part, place) for part in content]}
    elif content is not None:
        raise ValueError(f"message {place} must hold text or a list of text parts, got {type(content).__name__}")
    return dict(message)


def _part(part: Any, place: int) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise UnsupportedOption(
            f'message {place} holds a part of type {kind!r}; forerun reads text alone: {{"type": "text", "text": ...}}'
        )
    check_text(part["text"], f"message {place}")
    return dict(part)


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return {**message, "content": joined_parts(content) or ""} if isinstance(content, list) else message


def joined_parts(content: Any) -> Any:
    """The text of a content that is a list of text parts; any other content as it is."""
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if known and len(known) == len(parts) else content


def _reads_lists(tokenizer: Any) -> bool:
    """Whether the template writes a text part as it writes text, or knows no other form; some drop lists in silence."""
    parts, text = (_rendered(tokenizer, content) for content in ([{"type": "text", "text": _PROBE}], _PROBE))
    return parts is not None and _PROBE in parts and (parts == text or text is None or _PROBE not in text)


def _rendered(tokenizer: Any, content: Any) -> str | None:
    """A chat of one message, None where the template fails."""
    try:
        return str(tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False))
    except Exception:  # a template is a program of its own, and raises what it likes
        return None
