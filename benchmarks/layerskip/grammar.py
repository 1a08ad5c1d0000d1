"""Utterances and their parses in the shape of TOPv2, from a seeded grammar: train and test files with disjoint utterances.

    python benchmarks/layerskip/grammar.py FOLDER [--seed 0] [--train 4000] [--test 200]

Each line of FOLDER/train.jsonl and FOLDER/test.jsonl is {"prompt": the utterance, "answer": its parse}. Eight domains; an
utterance is a frame with slots in it; some slots hold a further intent. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

WORDS: dict[str, tuple[str, ...]] = {
    "name": (
        "anna",
        "ben",
        "carla",
        "david",
        "elena",
        "frank",
        "grace",
        "henry",
        "ines",
        "jonas",
        "katie",
        "liam",
        "maria",
        "noah",
        "olivia",
        "paul",
    ),
    "relation": ("mom", "dad", "my sister", "my brother", "grandma", "my boss", "the dentist", "my neighbor"),
    "day": (
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "today",
        "tomorrow",
        "tonight",
    ),
    "part": ("morning", "afternoon", "evening", "night"),
    "hour": tuple(str(hour) for hour in range(1, 13)),
    "minute": ("15", "20", "30", "40", "45", "50"),
    "half": ("am", "pm"),
    "number": tuple(str(number) for number in range(2, 60)),
    "unit": ("seconds", "minutes", "hours"),
    "span": ("days", "weeks", "months"),
    "city": (
        "berlin",
        "boston",
        "chicago",
        "dallas",
        "denver",
        "lisbon",
        "london",
        "madrid",
        "miami",
        "oslo",
        "paris",
        "rome",
        "seattle",
        "tokyo",
    ),
    "place": (
        "the airport",
        "the office",
        "the gym",
        "the library",
        "the stadium",
        "central station",
        "the mall",
        "work",
    ),
    "road": ("highway 9", "route 66", "main street", "the coast road", "the bridge", "the tunnel"),
    "weather": ("rain", "snow", "wind", "fog", "storms", "sunshine"),
    "garment": ("an umbrella", "a coat", "sunglasses", "boots", "a scarf"),
    "thing": ("milk", "bread", "the keys", "the tickets", "flowers", "the laundry", "a present", "the parcel"),
    "chore": ("clean the kitchen", "water the plants", "walk the dog", "pay the rent", "feed the cat", "book a flight"),
    "artist": ("adele", "coldplay", "drake", "metallica", "mozart", "nirvana", "queen", "rihanna", "u2", "shakira"),
    "song": ("yesterday", "hello", "thriller", "imagine", "fix you", "halo", "hurt", "jolene"),
    "genre": ("jazz", "rock", "techno", "folk", "classical", "hip hop", "reggae", "blues"),
    "list": ("workout", "party", "sleep", "road trip", "focus"),
    "event": ("concerts", "festivals", "markets", "comedy shows", "art shows", "football games", "food fairs"),
    "message": (
        "i am late",
        "dinner is ready",
        "call me back",
        "happy birthday",
        "see you soon",
        "the train is delayed",
    ),
    "app": ("whatsapp", "messenger", "email", "sms"),
    "means": ("car", "bike", "train", "bus", "foot"),
}
# a phrase is chosen and its {parts} are filled in, by other phrases or words
PHRASES: dict[str, tuple[str, ...]] = {
    "clock": ("{hour} {half}", "{hour} : {minute} {half}"),
    "time": (
        "at {clock}",
        "{day} at {clock}",
        "at {clock} {day}",
        "on {day} {part}",
        "in {number} {span}",
        "for {day} {part}",
        "next {day}",
    ),
    "when": ("{day}", "this {part}", "{day} {part}", "next week", "this weekend", "on {day}", "in {number} days"),
    "length": ("{number} {unit}", "{number} {unit}", "an hour", "half an hour"),
    "person": ("{name}", "{name}", "{relation}"),
    "spot": ("{city}", "{city}", "{place}"),
}
# [IN: opens an intent, [SL: a slot; what stands outside of slots is spoken, but isn't part of the parse
FRAMES: dict[str, tuple[str, ...]] = {
    "alarm": (
        "set an alarm [IN:CREATE_ALARM [SL:DATE_TIME {time} ] ]",
        "wake me up [IN:CREATE_ALARM [SL:DATE_TIME {time} ] ]",
        "please set a [IN:CREATE_ALARM [SL:ALARM_NAME {list} ] alarm [SL:DATE_TIME {time} ] ]",
        "delete my alarm [IN:DELETE_ALARM [SL:DATE_TIME {time} ] ]",
        "snooze the alarm for [IN:SNOOZE_ALARM [SL:DURATION {length} ] ]",
        "show me all alarms [IN:GET_ALARM [SL:DATE_TIME {time} ] ]",
    ),
    "reminder": (
        "remind me to [IN:CREATE_REMINDER [SL:TODO {chore} ] [SL:DATE_TIME {time} ] ]",
        "remind me [IN:CREATE_REMINDER [SL:DATE_TIME {time} ] to [SL:TODO buy {thing} ] ]",
        "set a reminder for [IN:CREATE_REMINDER [SL:PERSON_REMINDED {person} ] to [SL:TODO get {thing} ] ]",
        "remind me to [IN:CREATE_REMINDER [SL:TODO [IN:CREATE_CALL call [SL:CONTACT {person} ] ] ] [SL:DATE_TIME {time} ] ]",
        "remind me to [IN:CREATE_REMINDER [SL:TODO [IN:SEND_MESSAGE text [SL:RECIPIENT {person} ] about "
        "[SL:TOPIC {thing} ] ] ] [SL:DATE_TIME {time} ] ]",
        "cancel the reminder to [IN:DELETE_REMINDER [SL:TODO {chore} ] ]",
        "what do i have to do [IN:GET_REMINDER [SL:DATE_TIME {time} ] ]",
    ),
    "weather": (
        "what is the weather in [IN:GET_WEATHER [SL:LOCATION {city} ] [SL:DATE_TIME {when} ] ]",
        "will there be [IN:GET_WEATHER [SL:WEATHER_ATTRIBUTE {weather} ] in [SL:LOCATION {city} ] [SL:DATE_TIME {when} ] ]",
        "do i need [IN:GET_WEATHER [SL:WEATHER_ATTRIBUTE {garment} ] [SL:DATE_TIME {when} ] ]",
        "how cold does it get [IN:GET_WEATHER [SL:DATE_TIME {when} ] in [SL:LOCATION {city} ] ]",
        "when is sunset in [IN:GET_SUNSET [SL:LOCATION {city} ] [SL:DATE_TIME {when} ] ]",
    ),
    "timer": (
        "set a timer for [IN:CREATE_TIMER [SL:DURATION {length} ] ]",
        "start a [IN:CREATE_TIMER [SL:DURATION {length} ] timer called [SL:TIMER_NAME {list} ] ]",
        "add [IN:ADD_TIME_TIMER [SL:DURATION {length} ] to the [SL:TIMER_NAME {list} ] timer ]",
        "take [IN:SUBTRACT_TIME_TIMER [SL:DURATION {length} ] off the timer ]",
        "pause the [IN:PAUSE_TIMER [SL:TIMER_NAME {list} ] timer ]",
    ),
    "music": (
        "play [IN:PLAY_MUSIC [SL:MUSIC_TRACK_TITLE {song} ] by [SL:MUSIC_ARTIST_NAME {artist} ] ]",
        "play some [IN:PLAY_MUSIC [SL:MUSIC_GENRE {genre} ] for my [SL:MUSIC_PLAYLIST_TITLE {list} ] playlist ]",
        "i want to compare_with_log [IN:PLAY_MUSIC [SL:MUSIC_ARTIST_NAME {artist} ] for [SL:DURATION {length} ] ]",
        "add [IN:ADD_TO_PLAYLIST [SL:MUSIC_TRACK_TITLE {song} ] to my [SL:MUSIC_PLAYLIST_TITLE {list} ] playlist ]",
        "no more [IN:REMOVE_FROM_PLAYLIST [SL:MUSIC_GENRE {genre} ] in my [SL:MUSIC_PLAYLIST_TITLE {list} ] mix ]",
    ),
    "messaging": (
        "tell [IN:SEND_MESSAGE [SL:RECIPIENT {person} ] that [SL:CONTENT_EXACT {message} ] ]",
        "send a message to [IN:SEND_MESSAGE [SL:RECIPIENT {person} ] saying [SL:CONTENT_EXACT {message} ] ]",
        "write [IN:SEND_MESSAGE [SL:CONTENT_EXACT {message} ] to [SL:RECIPIENT {person} ] on [SL:NAME_APP {app} ] ]",
        "read the messages from [IN:GET_MESSAGE [SL:SENDER {person} ] on [SL:NAME_APP {app} ] ]",
        "text [IN:SEND_MESSAGE [SL:RECIPIENT {person} ] and [SL:RECIPIENT {name} ] that [SL:CONTENT_EXACT {message} ] ]",
    ),
    "navigation": (
        "how long is the drive from [IN:GET_ESTIMATED_DURATION [SL:SOURCE {spot} ] to [SL:DESTINATION {spot} ] ]",
        "directions to [IN:GET_DIRECTIONS [SL:DESTINATION {spot} ] by [SL:METHOD_TRAVEL {means} ] ]",
        "take me to [IN:GET_DIRECTIONS [SL:DESTINATION {spot} ] without using [SL:ROAD_AVOID {road} ] ]",
        "is there traffic on [IN:GET_INFO_TRAFFIC [SL:ROAD {road} ] near [SL:LOCATION {spot} ] ]",
        "when do i leave for [IN:GET_ESTIMATED_DEPARTURE [SL:DESTINATION [IN:GET_LOCATION_HOME [SL:CONTACT {name} ] 's "
        "house ] ] to be there [SL:DATE_TIME_ARRIVAL {time} ] ]",
        "how far is [IN:GET_DISTANCE [SL:DESTINATION [IN:GET_LOCATION_WORK [SL:CONTACT {name} ] 's office ] ] from "
        "[SL:SOURCE {spot} ] ]",
    ),
    "event": (
        "what [IN:GET_EVENT [SL:CATEGORY_EVENT {event} ] are there in [SL:LOCATION {city} ] [SL:DATE_TIME {when} ] ]",
        "find [IN:GET_EVENT [SL:CATEGORY_EVENT {event} ] near [SL:LOCATION {place} ] ]",
        "any [IN:GET_EVENT [SL:CATEGORY_EVENT {event} ] [SL:DATE_TIME {when} ] with [SL:NAME_EVENT {artist} ] ]",
        "is [IN:GET_EVENT [SL:NAME_EVENT {artist} ] playing in [SL:LOCATION {city} ] [SL:DATE_TIME {when} ] ]",
    ),
}
PART = re.compile(r"\{(\w+)\}")
TOKEN = re.compile(r"\[(?:IN|SL):\w+|\]|[^\s\]]+")


def filled(text: str, chance: random.Random) -> str:
    """The text with every part in braces replaced by one of its phrases or words."""
    while found := PART.search(text):
        name = found.group(1)
        choices = PHRASES.get(name) or WORDS[name]
        text = text[: found.start()] + chance.choice(choices) + text[found.end() :]
    return text


def spoken(annotated: str) -> str:
    """The utterance: what is left without the brackets."""
    return " ".join(token for token in TOKEN.findall(annotated) if not token.startswith(("[", "]")))


def parse(annotated: str) -> str:
    """The tree: brackets, and the words of slots that hold no intent, as TOPv2's decoupled form has them."""
    kept: list[str] = []
    opened: list[str] = []
    for token in TOKEN.findall(annotated):
        if token.startswith("["):
            opened.append(token[:3])
            kept.append(token)
        elif token == "]":
            opened.pop()
            kept.append(token)
        elif opened and opened[-1] == "[SL":
            kept.append(token)
    return " ".join(kept)


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Different utterances with their parses, each of a domain drawn by chance."""
    chance = random.Random(seed)
    domains = list(FRAMES)
    found: dict[str, str] = {}
    while len(found) < count:
        annotated = filled(chance.choice(FRAMES[chance.choice(domains)]), chance)
        found.setdefault(spoken(annotated), parse(annotated))
    return list(found.items())


def write(folder: Path, train: int, test: int, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = pairs(train + test, seed)
    random.Random(seed).shuffle(made)
    for name, part in (("test", made[:test]), ("train", made[test:])):
        lines = (json.dumps({"prompt": utterance, "answer": tree}) + "\n" for utterance, tree in part)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write utterances and parses.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=200)
    given = parser.parse_args()
    write(given.folder, given.train, given.test, given.seed)


if __name__ == "__main__":
    main()
