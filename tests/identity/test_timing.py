"""What is somebody else's and what never was take the same time to be not found."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Final

import pytest

from helpers.host.raw import RawHost, post, raw_host
from helpers.identity_provider import IdentityProvider
from identity.gateways import Stage, ended_task, stage_of
from requirements import covers

pytestmark = pytest.mark.alone

SAMPLES: Final = 400
LEAST_P: Final = 0.001
UNSEEN: Final = 3e-6
"""Seconds that may lie between them: half of one shows over loopback, and is more where cores are slow."""
SHIFTS: Final = [UNSEEN * tenth / 10 for tenth in range(-10, 11)]
"""Close together, because ranks are uneven as soon as a shift misses the real difference by a little."""


def chance(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney: how likely ranks are at least so uneven if both come from one source."""
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    sum_of_ranks = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    m, n = len(first), len(second)
    u = sum_of_ranks - m * (m + 1) / 2
    return math.erfc(abs(u - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12) / math.sqrt(2))


async def seconds(
    host: RawHost, questions: tuple[Sequence[bytes], Sequence[bytes]], random: Random
) -> list[list[float]]:
    """How long each of two kinds of questions took, asked in random order on one connection."""
    order = [0, 1] * SAMPLES
    random.shuffle(order)
    took: list[list[float]] = [[], []]
    for which in order:
        question = questions[which][len(took[which]) % len(questions[which])]
        begun = perf_counter()
        await host.ask(question)
        took[which].append(perf_counter() - begun)
    return took


def likeliest(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance of what was seen, if one of them may be slower by what nobody sees through a network."""
    return max(chance([value + shift for value in first], second) for shift in SHIFTS)


async def expect_no_difference(stage: Stage, foreign: Sequence[bytes], unknown: Sequence[bytes]) -> None:
    """Chance alone is as uneven as this once in a thousand times, so that a second look decides."""
    random = Random(20)
    found: list[str] = []
    async with raw_host(stage.gateway.address) as host:
        await seconds(host, (foreign, unknown), random)
        for _ in range(2):
            took = await seconds(host, (foreign, unknown), random)
            p = likeliest(*took)
            if p > LEAST_P:
                return
            found.append(f"p = {p:.1e}, medians of {median(took[0]) * 1e6:.1f} and {median(took[1]) * 1e6:.1f} us")
    pytest.fail("foreign and unknown can be told apart: " + "; ".join(found))


def question(stage: Stage, session: str | None, task: str | None = None) -> bytes:
    """A request of Alice's, whole."""
    method, params = ("ping", {}) if task is None else ("tasks/get", {"taskId": task})
    return post(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        path="/reports/mcp",
        host="127.0.0.1",
        Authorization=f"Bearer {stage.alices}",
        Mcp_Session_Id=session or "",
    )


def unknown_ids(count: int) -> list[str]:
    letters = Random(32)
    return ["".join(letters.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789-_", k=32)) for _ in range(count)]


@covers("I-ISO-3")
@pytest.mark.parametrize("stored", ["in memory", "in a file"])
async def test_a_foreign_task_takes_as_long_as_an_unknown_one(
    provider: IdentityProvider, stored: str, tmp_path: Path
) -> None:
    async with stage_of(provider, folder=tmp_path if stored == "in a file" else None) as stage:
        tasks = [await ended_task(stage.bob) for _ in range(20)]
        foreign, unknown = (
            [question(stage, stage.alice.session, task) for task in each] for each in (tasks, unknown_ids(20))
        )
        await expect_no_difference(stage, foreign, unknown)


@covers("I-ISO-3")
@pytest.mark.parametrize("stored", ["in memory", "in a file"])
async def test_a_foreign_session_takes_as_long_as_an_unknown_one(
    provider: IdentityProvider, stored: str, tmp_path: Path
) -> None:
    async with stage_of(provider, folder=tmp_path if stored == "in a file" else None) as stage:
        hosts = [await stage.gateway.greeted(token=stage.bobs) for _ in range(20)]
        foreign = [question(stage, host.session) for host in hosts]
        unknown = [question(stage, session) for session in unknown_ids(20)]
        await expect_no_difference(stage, foreign, unknown)


def test_a_difference_in_time_would_be_seen() -> None:
    random = Random(1)
    fast, like_it, slightly_slower, slower, much_slower = (
        [random.gauss(120e-6 + by, 2e-6) for _ in range(SAMPLES)] for by in (0.0, 0.0, UNSEEN / 2, UNSEEN, 2 * UNSEEN)
    )
    assert chance(fast, like_it) > LEAST_P
    for unseen in (slightly_slower, slower):
        assert chance(fast, unseen) < LEAST_P < likeliest(fast, unseen)
    assert likeliest(fast, much_slower) < LEAST_P
    assert likeliest(much_slower, fast) < LEAST_P
