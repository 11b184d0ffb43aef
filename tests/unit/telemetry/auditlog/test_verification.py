"""Verification: what it says of a changed log, whatever was done to it, and of what it cannot see."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random

import orjson
import pytest

from helpers.examples import examples
from taskgate.telemetry.auditlog.chain import CHAIN_STARTED, Chain, ChainHead, HmacSigner, KeyRing, digest_of
from taskgate.telemetry.auditlog.events import internal_event
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, ExternalCheckpoint, read_checkpoints
from unit.telemetry.auditlog.audit_cases import ANSWERED, events_of, new_context
from unit.telemetry.auditlog.written_logs import (
    FORMATS,
    KEY,
    NOW,
    RING,
    chain_anew,
    forge,
    found,
    is_found,
    judge,
    rewrite,
    write,
)

# --- what is said -------------------------------------------------------------------------------------------------


def test_a_log_that_is_as_it_was_has_nothing_wrong() -> None:
    lines, elsewhere = write()
    verdict = judge(lines, elsewhere=elsewhere)
    assert verdict == ChainVerdict(lines=11, first=1, last=11, findings=(), doubts=(), sinks=("file on gw-1",))


def test_a_changed_line_is_named() -> None:
    lines = write().lines
    lines[3] = lines[3].replace(b'"success"', b'"denied"')
    assert found(lines) == ["log:4: was changed, or the line after it was"]


def test_missing_lines_are_counted() -> None:
    lines = write().lines
    assert found(lines[:3] + lines[5:]) == ["log:4: lines 4 to 5 of the chain are missing before it"]


def test_lines_that_are_out_of_order_are_told_by_their_number() -> None:
    lines = write().lines
    lines[2], lines[3] = lines[3], lines[2]
    assert found(lines) == [
        "log:3: lines 3 to 3 of the chain are missing before it",
        "log:4: is line 3 of the chain, but line 5 is expected here",
        "log:5: lines 4 to 4 of the chain are missing before it",
    ]


def test_half_a_line_at_the_end_is_told() -> None:
    lines = write().lines
    lines[-1] = lines[-1][:40]
    assert found(lines) == ["log:11: is incomplete: it has no newline", "log:11: is not an audit log line"]


def test_a_missing_newline_is_told() -> None:
    lines = write().lines
    lines[-1] = lines[-1][:-1]
    assert found(lines) == ["log:11: is incomplete: it has no newline"]


def test_a_signed_line_in_another_form_is_told() -> None:
    """The last line is tied to nothing behind it, so its signature is all there is."""
    lines = write().lines
    lines[-1] = lines[-1].replace(b'":', b'": ', 1)
    assert found(lines) == ["log:11: has no signature, or is not in its canonical form"]


def test_a_signed_line_that_is_called_otherwise_is_told() -> None:
    lines = write().lines
    lines[-1] = lines[-1].replace(b"audit.checkpoint", b"audit.checkpoinT")
    assert found(lines) == ["log:11: has an invalid signature"]


def test_a_beginning_that_is_gone_is_told() -> None:
    assert found(write().lines[1:]) == ["log:1: does not start a chain: lines before it are missing"]


def test_a_first_line_that_is_tied_to_another_is_told() -> None:
    lines = write().lines
    lines[0] = forge(lines[0], prev="ab" * 32)
    assert "log:1: is the first line of the chain, but links to an earlier line" in found(lines)


def test_another_chain_in_the_midst_is_told() -> None:
    lines = write().lines
    told = ["log:12: starts another chain: lines may be missing before it"]
    assert found(lines + lines) == told


def test_a_log_of_nothing_is_told() -> None:
    assert found([]) == ["the log: has no lines"]
    assert judge([]).lines == 0


def test_a_log_that_is_shorter_than_it_was_once_is_told() -> None:
    lines = write().lines
    assert found(lines, expected=11) == []
    assert found(lines, expected=12) == ["the log: ends with line 11, but must have at least 12"]


def test_a_cut_log_is_told_by_what_another_sink_knows() -> None:
    lines, elsewhere = write()
    assert found(lines[:8], elsewhere=elsewhere) == ["stdout:3: confirms line 11, but the log ends with line 8"]
    assert found(lines[:8]) == []
    assert judge(lines[:8]).doubts[-1] == "whether lines were cut off at the end: give --checkpoint or --expect-seq"


def test_a_log_written_anew_is_told_by_what_another_sink_knows_of_it() -> None:
    lines, elsewhere = write()
    changed = rewrite(lines, Random(1))
    assert any("confirms another line" in each for each in found(changed, elsewhere=elsewhere, ring=KeyRing()))


def test_a_forged_checkpoint_does_not_count_and_is_told() -> None:
    lines, elsewhere = write()
    elsewhere[2] = elsewhere[2].replace(b'"seq":11', b'"seq":99')
    assert found(lines, elsewhere=elsewhere) == ["stdout:3: has an invalid signature"]


def test_a_key_that_was_not_given_is_told() -> None:
    """Anybody can sign with a key of their own."""
    lines, elsewhere = write()
    told = found(lines, elsewhere=elsewhere, ring=KeyRing(keys=(b"o" * 32,)))
    key = HmacSigner(KEY).key_id
    places = ["log:1", "log:7", "log:11", "stdout:2", "stdout:3"]
    assert told == [f"{place}: is signed with key {key}, which is not among the given keys" for place in places]


@pytest.mark.parametrize("ring", [KeyRing(), KeyRing(keys=(b"o" * 32,))])
def test_what_a_line_says_of_itself_does_not_pass_for_what_was_found(ring: KeyRing) -> None:
    """A forger may write whatever a terminal understands."""
    lines, elsewhere = write()
    lines = [line.replace(b'"key":"', b'"key":"x\\n\\u001b[2J').replace(b'"sink":"', b'"sink":"x\\n') for line in lines]
    verdict = judge(lines, ring=ring, elsewhere=[line.replace(b'"key":"', b'"key":"x\\n') for line in elsewhere])
    said = [*map(str, verdict.findings), *verdict.doubts, *verdict.sinks]
    assert any(r"x\u000a\u001b" in each for each in said)
    assert all(each.isprintable() for each in said)


def test_lines_that_are_not_chained_are_told_to_who_knows_of_a_chain() -> None:
    lines = write(chained=False).lines
    told = "11 lines are not chained: anyone could have written them"
    assert found(lines) == [f"the log: {told}"]
    assert found(lines, ring=KeyRing()) == []
    assert told in judge(lines, ring=KeyRing()).doubts


# --- what could not be looked at ----------------------------------------------------------------------------------


def test_without_a_key_it_is_said_what_that_means() -> None:
    doubts = judge(write().lines, ring=KeyRing(), expected=1).doubts
    assert doubts == (
        f"signatures, because no key was given (3 with key {HmacSigner(KEY).key_id}): "
        "anyone who can write the files could have rewritten the whole log",
    )


def test_what_is_behind_the_last_signature_is_said() -> None:
    lines = write().lines
    chain = Chain(ChainHead(11, digest_of(lines[-1][:-1])), None)
    (event,) = events_of(ANSWERED, new_context())
    added = chain.add(Renderer(LineOptions(), key=KEY, node="gw-1")(event))
    lines.append(forge(added, prev=digest_of(lines[-1][:-1])))
    verdict = judge(lines, expected=1)
    assert verdict.findings == ()
    assert verdict.doubts == (
        "lines 12 to 12, after the last signature: anyone who can write the files could have changed or added them",
    )


def test_what_came_before_is_said() -> None:
    lines = write().lines
    render = Renderer(LineOptions(), key=KEY, node="gw-1")
    chain = Chain(ChainHead(11, digest_of(lines[-1][:-1])), HmacSigner(KEY))
    said = {"sink": "file", "seq": 11, "head": chain.head.digest}
    verdict = judge([chain.add(render(internal_event(CHAIN_STARTED, NOW, data=said)))], elsewhere=write().elsewhere)
    assert (verdict.first, verdict.findings) == (12, ())
    assert verdict.doubts == (
        "lines 1 to 11 of the chain are not in these files",
        "2 checkpoints cover lines that are not in these files",
    )


def test_checkpoints_of_others_are_none_of_this_log() -> None:
    lines, elsewhere = write()
    others = [line.replace(b'"node":"gw-1"', b'"node":"gw-2"') for line in elsewhere]
    assert found(lines, elsewhere=others) == ["the log: is not covered by the given checkpoints"]


def test_a_log_of_another_sink_is_not_taken_for_the_one_that_checkpoints_are_about() -> None:
    """It is as whole, and signed with the same key."""
    elsewhere = write().elsewhere
    assert found(elsewhere) == []
    assert found(elsewhere, elsewhere=elsewhere) == ["the log: is not covered by the given checkpoints"]


def test_files_are_read_as_one_log(tmp_path: Path) -> None:
    lines = write().lines
    verification = ChainVerifier(RING)
    verification.read("first", lines[:4])
    verification.read("second", lines[4:])
    assert verification.verdict().findings == ()
    verification = ChainVerifier(RING)
    verification.read("first", lines[:4])
    verification.read("third", lines[6:])
    told = [str(each) for each in verification.verdict().findings]
    assert told == ["third:1: lines 5 to 6 of the chain are missing before it"]


def test_checkpoints_are_found_among_other_things() -> None:
    elsewhere = write().elsewhere
    noise = [b"\n", b"listening\n", b'{"event":"audit.checkpoint"}\n', b"audit.checkpoint\n", elsewhere[0]]
    unsigned = forge(elsewhere[1], data={"sink": "file", "seq": 5, "head": "x"})
    unnumbered = forge(elsewhere[1], data={**orjson.loads(elsewhere[1])["data"], "seq": "5"})
    wordless = forge(elsewhere[1], data=None)
    found = list(
        read_checkpoints("stdout", [*noise, unsigned, unnumbered, wordless, elsewhere[1].replace(b"\n", b"\r\n")])
    )
    assert [(each.place, each.sink, each.node, each.head.seq) for each in found] == [("stdout:9", "file", "gw-1", 7)]
    assert isinstance(found[0], ExternalCheckpoint)


# --- tampering -------------------------------------------------------------------------------------------------------


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
