"""The lines of the store's scripts that fence are held by tests: without any of them a test is red.

`make mutants` tries every line of every script; these are those that a storm over replicas does not miss.
"""

import subprocess
import sys

import pytest
from tests.mutants.mutations import mutants
from tests.mutants.trial import TESTS, all_mutants, equivalent

FENCES = (
    "records/swap.lua: left out: if at ~= expected then",
    "records/swap.lua: turned ~= at 6: if at ~= expected then",
    "records/insert.lua: negated: if used >= tonumber(limit)",
    "records/renew.lua: negated: if redis.pcall",
    "records/restore.lua: negated: if tonumber(kept_revision)",
    "records/withdraw.lua: left out: if redis.call",
    "beat.lua: negated: elseif held_by ~= holder",
)

LUA = """-- A comment is nothing.
local one, other = ARGV[1],
  ARGV[2]

for number = 1, 3 do
  redis.call('SET', 'a < b', number)
end
if one == other and one ~= '' then return 1 end
return 0
"""


def test_each_statement_is_left_out_or_turned_round_and_texts_are_left_alone() -> None:
    assert [each.name for each in mutants("some.lua", LUA)] == [
        "some.lua: not run: for number = 1, 3 do",
        "some.lua: left out: redis.call('SET', 'a < b', number)",
        "some.lua: negated: if one == other and one ~= '' then return 1 end",
        "some.lua: left out: if one == other and one ~= '' then return 1 end",
        "some.lua: turned == at 7: if one == other and one ~= '' then return 1 end",
        "some.lua: turned and at 16: if one == other and one ~= '' then return 1 end",
        "some.lua: turned ~= at 24: if one == other and one ~= '' then return 1 end",
        "some.lua: left out: return 0",
    ]


def test_a_mutant_is_the_script_with_that_change_alone() -> None:
    texts = {each.name.removeprefix("some.lua: "): each.text for each in mutants("some.lua", LUA)}
    changed = texts["turned and at 16: if one == other and one ~= '' then return 1 end"]
    assert changed == LUA.replace("other and one", "other or one")
    assert texts["left out: return 0"] == LUA.replace("return 0\n", "\n")
    assert texts["not run: for number = 1, 3 do"] == LUA.replace("for number = 1, 3 do", "while false do")


def test_what_is_listed_as_equivalent_is_a_mutant_and_has_a_reason() -> None:
    listed = equivalent()
    assert listed.keys() <= {mutant.name for mutant in all_mutants()}
    assert all(listed.values())


@pytest.mark.parametrize("fence", FENCES)
def test_each_fence_is_one_line(fence: str) -> None:
    assert len(list(all_mutants([fence]))) == 1


@pytest.mark.timeout(300)
def test_without_a_line_that_fences_a_test_is_red() -> None:
    only = [part for fence in FENCES for part in ("--only", fence)]
    command = [sys.executable, "-m", "tests.mutants.trial", "--jobs", "2", *only]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=290)
    assert (done.returncode, done.stdout) == (0, f"{len(FENCES)} mutants, 0 survive, 0 of them listed\n"), done.stderr
