"""Whatever is done to a log is found: a thousand trials of each kind, in every format."""

from collections.abc import Callable
from io import BytesIO
from random import Random

import pytest

from helpers.examples import examples
from taskgate.telemetry.auditlog.chain import digest_of
from taskgate.telemetry.auditlog.signing import KeyRing
from unit.telemetry.auditlog.written_logs import FORMATS, chain_anew, forge, found, is_found, rewrite, write

TRIALS = examples(2000)
Tampering = Callable[[list[bytes], Random], list[bytes]]


def change(lines: list[bytes], chance: Random) -> list[bytes]:
    """One byte is another."""
    text = bytearray(b"".join(lines))
    text[chance.randrange(len(text))] ^= chance.randrange(1, 256)
    return BytesIO(text).readlines()


def remove(lines: list[bytes], chance: Random) -> list[bytes]:
    """Some lines in a row are gone, but not all from somewhere to the end."""
    start = chance.randrange(len(lines) - 1)
    return lines[:start] + lines[chance.randrange(start + 1, len(lines)) :]


def remove_and_chain_anew(lines: list[bytes], chance: Random) -> list[bytes]:
    """One line is gone, and all behind it is chained anew."""
    at = chance.randrange(len(lines) - 1)
    return chain_anew(lines[:at] + lines[at + 1 :], max(at, 1))


def cut(lines: list[bytes], chance: Random) -> list[bytes]:
    """The end is gone."""
    return lines[: chance.randrange(len(lines))]


def insert(lines: list[bytes], chance: Random) -> list[bytes]:
    """There is a line more, which is one of the others or much like it, and maybe tied to what it stands behind."""
    at = chance.randrange(1, len(lines) + 1)
    line = chance.choice(lines)
    if chance.random() < 0.5:
        line = forge(line, seq=at + 1, prev=digest_of(lines[at - 1][:-1]))
    made = [*lines[:at], line, *lines[at:]]
    # At the very end nothing would be behind it: see the doubts.
    return made if at < len(lines) else [line, *lines]


def reorder(lines: list[bytes], chance: Random) -> list[bytes]:
    """Two lines have changed places."""
    one, other = sorted(chance.sample(range(len(lines)), 2))
    made = list(lines)
    made[one], made[other] = made[other], made[one]
    return made


def strip(lines: list[bytes], _: Random) -> list[bytes]:
    """Nothing is chained or signed any more."""
    return [forge(line, prev=None) for line in lines]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "tamper", [change, rewrite, remove, remove_and_chain_anew, insert, reorder, strip], ids=lambda each: each.__name__
)
def test_what_was_done_to_a_log_is_found(form: str, tamper: Tampering) -> None:
    lines, chance = write(form).lines, Random(7)
    assert found(lines) == []
    missed = [made for made in (tamper(lines, chance) for _ in range(TRIALS)) if made != lines and not is_found(made)]
    assert missed == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("tamper", [cut, change, rewrite, remove, insert, reorder], ids=lambda each: each.__name__)
def test_with_checkpoints_of_another_sink_it_is_found_without_a_key(form: str, tamper: Tampering) -> None:
    log, chance = write(form), Random(8)
    lines, elsewhere = log
    assert found(lines, elsewhere=elsewhere, ring=KeyRing()) == []
    made = (tamper(lines, chance) for _ in range(TRIALS))
    missed = [each for each in made if each != lines and not is_found(each, elsewhere=elsewhere, ring=KeyRing())]
    assert missed == []
