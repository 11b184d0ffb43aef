"""What programs write on their standard error: in the log, bounded, without their secrets, and of no other meaning."""

import asyncio
from collections.abc import Callable

import pytest

from helpers.loop_pace import paced
from helpers.waiting import bounded, eventually
from taskgate.upstream.stdio.stderr_log import BYTES_A_SECOND, LINES_A_SECOND
from unit.upstream.stdio.conftest import Yard
from unit.upstream.stdio.programs import program, runs

NewYard = Callable[..., Yard]


class Said:
    """The log of programs."""

    def __init__(self, records: Callable[[], list[object]]) -> None:
        self._records = records

    @property
    def lines(self) -> list[dict[str, object]]:
        found = [vars(each) for each in self._records() if vars(each)["name"] == "taskgate.upstream.stderr"]
        names = ("text", "upstream", "stream", "dropped", "pid", "msg", "levelname")
        return [{name: each[name] for name in names if name in each} for each in found]

    @property
    def texts(self) -> list[object]:
        return [line["text"] for line in self.lines]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level("INFO")
    return Said(lambda: list(caplog.records))


async def test_each_line_is_a_line_of_the_log(yard: Yard, said: Said) -> None:
    taken = await yard.take()
    await taken.do("sys.stderr.write('Starting...\\n\\n  indented %s %d\\nlast'); sys.stderr.flush(); say({})")
    await taken.told()
    taken.line.drop()
    await eventually(lambda: len(said.lines) == 3)
    fields = {
        "upstream": "reports", "stream": "stderr", "pid": taken.line.pid,
        "msg": "output of a server's program", "levelname": "INFO",
    }  # fmt: skip
    assert said.lines == [{"text": text, **fields} for text in ("Starting...", "  indented %s %d", "last")]


async def test_what_a_program_said_right_before_its_end_is_there(yard: Yard, said: Said) -> None:
    taken = await yard.take()
    await taken.do("raise RuntimeError('no more')")
    assert "status 1" in str(await taken.end())
    await eventually(lambda: "RuntimeError: no more" in said.texts)


async def test_it_is_no_sign_of_a_failure(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do("sys.stderr.write('ERROR: fatal!\\n'); say({})")
    await taken.told()
    assert (taken.line.is_usable, taken.ears.failures) == (True, [])


async def test_a_secret_of_its_environment_is_not_in_it(new_yard: NewYard, said: Said) -> None:
    yard = new_yard(env={"TOKEN": "hunter22", "DEBUG": "1"})
    taken = await yard.take()
    await taken.do(
        "sys.stderr.write('1 token: ' + os.environ['TOKEN'] + '\\n'); print(os.environ['TOKEN'], flush=True)"
    )
    await eventually(lambda: len(said.lines) == 2)
    assert sorted(str(text) for text in said.texts) == ["1 token: [redacted]", "[redacted]"]


async def test_nor_of_a_line_without_an_end(new_yard: NewYard, said: Said) -> None:
    yard = new_yard(env={"TOKEN": "hunter22" * 4})
    taken = await yard.take()
    await taken.do("sys.stderr.write(' ' + os.environ['TOKEN'] * 10000 + '\\nnext\\n'); say({})")
    await eventually(lambda: "next" in said.texts)
    assert len(said.lines) == 2
    assert "hunter" not in "".join(map(str, said.texts))


async def test_a_long_line_is_cut_and_the_next_is_whole(yard: Yard, said: Said) -> None:
    taken = await yard.take()
    await taken.do("sys.stderr.write('x' * 500000 + '\\nnext\\n'); sys.stderr.flush()")
    await eventually(lambda: len(said.lines) == 2)
    assert said.texts == ["x" * 1000 + "…", "next"]


async def test_of_many_lines_some_are_told_and_the_rest_is_counted(yard: Yard, said: Said) -> None:
    taken = await yard.take()
    await taken.do("[sys.stderr.write(f'{n}\\n') for n in range(1000)]; sys.stderr.flush(); say({})")
    await taken.told()
    taken.line.drop()
    await eventually(lambda: not runs(taken.line.pid) and any("dropped" in line for line in said.lines))
    # The next line that is told says how many were not.
    assert said.texts[:LINES_A_SECOND] == [str(number) for number in range(LINES_A_SECOND)]
    told = sum(1 for text in said.texts if text)
    assert told + sum(int(str(line.get("dropped", 0))) for line in said.lines) == 1000


async def test_the_bound_is_over_all_programs_of_a_server(yard: Yard, said: Said) -> None:
    taken = [await yard.take(name) for name in "abc"]
    # All within one second.
    with paced(0.01):
        for each in taken:
            await each.do("[sys.stderr.write('x\\n') for _ in range(100)]; sys.stderr.flush(); sys.exit()")
        for each in taken:
            await each.end()
        await eventually(lambda: sum(int(str(line.get("dropped", 0))) for line in said.lines) == 300 - LINES_A_SECOND)
    assert said.texts.count("x") == LINES_A_SECOND


async def test_a_program_that_fills_it_can_go_on_and_is_not_read_faster_than_that(yard: Yard, said: Said) -> None:
    taken = await yard.take()
    loop = asyncio.get_running_loop()
    with paced(5):
        began = loop.time()
        await taken.do(
            f"sys.stderr.write(('x' * 99 + '\\n') * {4 * BYTES_A_SECOND // 100}); sys.stderr.flush();"
            "say({'wrote': 'all'})"
        )
        async with bounded():
            assert await taken.told() == [{"wrote": "all"}]
        seconds = loop.time() - began
    # A quarter passes at once, and one a second, and what the pipe holds.
    assert seconds > 1.5
    assert len(said.lines) <= LINES_A_SECOND * (seconds + 2)


async def test_a_program_that_only_fills_it_delays_nobody_else(new_yard: NewYard) -> None:
    loud = await new_yard(command=program("while True: sys.stderr.write('x' * 10 + '\\n')")).take()
    fine = await new_yard().take()
    loop = asyncio.get_running_loop()
    for number in range(20):
        began = loop.time()
        await fine.tell(id=number)
        await fine.told(number + 1)
        assert loop.time() - began < 2
    assert loud.line.is_usable
