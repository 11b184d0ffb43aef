"""A power cut, as the files of one folder see it: what a program has synced stays, chance decides about the rest.

    disk = TracedDisk(folder, trace)
    ...                          # [*disk.command(), program, …] runs as process `id`, and ends or is killed
    await disk.cut(id, Random(1))     # the folder is now as after a power cut at that moment

strace, which needs no privilege, writes down the calls that change files. A write is durable once a sync of its file
that began after it has ended, and a name once one of its folder has. Of the rest chance keeps nothing, all, or some
sectors and some of the names. First all calls together must give the files as they are: else one was not understood.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest

from helpers.waiting import eventually
from provider.install import nothing_may_be_missing

SECTOR = 512
_CALLS = (
    "openat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,copy_file_range,sendfile,"
    "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
)
_LONGEST = 2**24
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_ENDED = re.compile(r"(.*)\) += (\?|-?\d+).*")
_UNFINISHED = " <unfinished ...>"
_FILE = re.compile(r"(\d+)<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"(\.\.\.)?')
_MAPPED = "-shm"
"""How the name of a file ends that is written through memory, which no call shows; SQLite makes it anew."""

Names = dict[str, "File"]


@dataclass(slots=True)
class File:
    """The first content of a file, what was written since (None: cut to a length), and how many writes are durable."""

    content: bytes = b""
    writes: list[tuple[int, bytes | None]] = field(default_factory=list)
    size: int = 0
    synced: int = 0

    def write(self, at: int, data: bytes | None) -> None:
        """Write these bytes, or cut it to the length `at`."""
        self.writes.append((at, data))
        self.size = at if data is None else max(self.size, at + len(data))

    def whole(self) -> bytes:
        """All that was written."""
        return self._having(len(self.writes), 1.0, Random(0))

    def after_cut(self, kept: float, chance: Random) -> bytes:
        """What is durable, and the rest with that chance for each sector of each write."""
        return self._having(self.synced, kept, chance)

    def _having(self, synced: int, kept: float, chance: Random) -> bytes:
        content = bytearray(self.content)
        for number, (at, data) in enumerate(self.writes):
            pieces = [(at, data)] if data is None or number < synced else _sectors(at, data)
            for start, piece in pieces:
                if number < synced or chance.random() < kept:
                    content.extend(bytes(max(0, start - len(content))))
                    content[start : len(content) if piece is None else start + len(piece)] = piece or b""
        return bytes(content)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the system, with its arguments as strace has them."""

    thread: str
    name: str
    arguments: str

    @property
    def descriptor(self) -> int:
        """The open file that it is about."""
        return int(self.arguments.partition("<")[0])

    @property
    def path(self) -> str:
        """The path of that file."""
        found = _FILE.match(self.arguments)
        assert found is not None, self
        return _bytes(found[2]).decode()

    @property
    def texts(self) -> list[bytes]:
        """The arguments that are text."""
        found = list(_TEXT.finditer(self.arguments))
        assert not any(each[2] for each in found), "longer than strace was to write down"
        return [_bytes(each[1]) for each in found]

    @property
    def last_number(self) -> int:
        """The last argument."""
        return int(self.arguments.rpartition(", ")[2])


class Replay:
    """What calls do to a folder, one after the other."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self._folder = f"{folder}/"
        self.names: list[Names] = [{name: File(content, size=len(content)) for name, content in files.items()}]
        """The files by their names: at first, and after each call that changed a name."""
        self.synced = 0
        self._marks: dict[str, int] = {}
        self._ends: dict[int, int] = {}

    def begin(self, call: Call) -> None:
        """A call begins. Only what was done by now does a sync make durable."""
        if call.name in ("fsync", "fdatasync"):
            file = self._file(call.path)
            self._marks[call.thread] = len(self.names) - 1 if file is None else len(file.writes)

    def end(self, call: Call, result: int) -> None:
        """A call has done what it should."""
        match call.name:
            case "openat":
                self._open(call, result)
            case "fsync" | "fdatasync":
                self._sync(call)
            case "pwrite64" | "write" | "ftruncate":
                self._write(call, result)
            case "rename" | "link" | "unlink":
                self._rename(call)
            case "lseek":
                if self._ends.get(call.descriptor, -1) >= 0:
                    self._ends[call.descriptor] = result
            case _:
                raise AssertionError(f"not understood: {call}")

    def _file(self, path: str) -> File | None:
        return self.names[-1].get(path.removeprefix(self._folder))

    def _open(self, call: Call, descriptor: int) -> None:
        path = call.texts[0].decode()
        if "O_CREAT" in call.arguments and self._file(path) is None and path.startswith(self._folder):
            self.names.append({**self.names[-1], path.removeprefix(self._folder): File()})
        file = self._file(path)
        if file is not None:
            if "O_TRUNC" in call.arguments:
                file.write(0, None)
            self._ends[descriptor] = -1 if "O_APPEND" in call.arguments else 0

    def _write(self, call: Call, result: int) -> None:
        file = self._file(call.path)
        if file is None:
            return
        if call.name == "ftruncate":
            file.write(call.last_number, None)
        elif call.name == "pwrite64":
            file.write(call.last_number, call.texts[0][:result])
        else:
            at = self._ends[call.descriptor]
            file.write(file.size if at < 0 else at, call.texts[0][:result])
            self._ends[call.descriptor] = at if at < 0 else at + result

    def _sync(self, call: Call) -> None:
        mark, file = self._marks.pop(call.thread), self._file(call.path)
        if file is not None:
            file.synced = max(file.synced, mark)
        elif f"{call.path}/" == self._folder:
            self.synced = max(self.synced, mark)

    def _rename(self, call: Call) -> None:
        old, *new = (text.decode() for text in call.texts)
        file = self._file(old)
        if file is None:
            return
        names = dict(self.names[-1])
        if call.name != "link":
            del names[old.removeprefix(self._folder)]
        if new:
            names[new[0].removeprefix(self._folder)] = file
        self.names.append(names)


class TracedDisk:
    """A folder that holds no other, whose changes by a program are written down in the file `trace`."""

    def __init__(self, folder: Path, trace: Path) -> None:
        self.folder = folder
        self._trace = trace
        self._before: dict[str, bytes] = {}

    def command(self) -> list[str]:
        """What to put before the command of a program that starts now. Skips the test where there is no strace."""
        strace = shutil.which("strace")
        if strace is None:
            reason = "strace is not installed (Debian: apt-get install strace)"
            if nothing_may_be_missing():
                pytest.fail(f"nothing may be missing here, but {reason}", pytrace=False)
            pytest.skip(reason)
        self._before = self._content()
        # strace is a grandchild of the program: whoever starts that has the program itself as a child, and may kill it.
        options = ["-D", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(_LONGEST)]
        return [strace, *options, "-e", f"trace={_CALLS}", "-o", str(self._trace), "--"]

    async def cut(self, program: int, chance: Random) -> None:
        """Leave what a power cut leaves, once the process of that number is gone."""
        await eventually(lambda: self._has_end_of(program))
        replay = self._understood()
        kept = chance.choice((0.0, 0.5, 1.0))
        names = replay.names[replay.synced :]
        left = names[0] if kept == 0.0 else names[-1] if kept == 1.0 else chance.choice(names)
        for path in self.folder.iterdir():
            path.unlink()
        for name, file in left.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_bytes(file.after_cut(kept, chance))

    def _has_end_of(self, program: int) -> bool:
        # The threads of a process end before it does.
        with self._trace.open("rb") as lines:
            lines.seek(max(0, self._trace.stat().st_size - 100))
            return re.search(rb"^%d +\+\+\+ .*\n\Z" % program, lines.read(), re.MULTILINE) is not None

    def _understood(self) -> Replay:
        """All calls, which give the files as they are. A call that the kill fell into was done, or was not."""
        trace, now = self._parsed(), self._content()
        different: set[str] = set()
        for done in product((True, False), repeat=len(trace.interrupted)):
            replay = Replay(self.folder, self._before)
            for call, result in trace.calls:
                replay.begin(call) if result is None else replay.end(call, result)
            for call, was_done in zip(trace.interrupted, done, strict=True):
                if was_done and call.name not in ("fsync", "fdatasync"):
                    replay.end(call, _LONGEST)
            found = {name: file.whole() for name, file in replay.names[-1].items()}
            different = {name for name in found | now if found.get(name) != now.get(name)}
            if all(name.endswith(_MAPPED) for name in different):
                return replay
        raise AssertionError(f"calls were not understood, or are missing: {different}")

    def _parsed(self) -> "Trace":
        """The calls that are about the folder."""
        trace, open_calls, of_folder = Trace(), dict[str, Call](), _hex(str(self.folder))
        with self._trace.open(encoding="ascii") as lines:
            for line in lines:
                if (found := _RESUMED.match(line)) is not None:
                    begun = open_calls.pop(found[1], None)
                    if begun is not None:
                        trace.end(begun, begun.arguments + found[2])
                elif of_folder in line and (found := _BEGUN.match(line)) is not None:
                    arguments = found[3].partition(_UNFINISHED)[0]
                    call = Call(found[1], found[2], arguments)
                    trace.calls.append((call, None))
                    if arguments != found[3]:
                        open_calls[call.thread] = call
                    else:
                        trace.end(call, arguments)
        trace.interrupted.extend(open_calls.values())
        return trace

    def _content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls that strace wrote down, each where it began (None) and where it ended well, with its result."""

    calls: list[tuple[Call, int | None]] = field(default_factory=list)
    interrupted: list[Call] = field(default_factory=list)

    def end(self, call: Call, text: str) -> None:
        """A call has ended, and this is all that was written of it."""
        found = _ENDED.match(text)
        assert found is not None, text
        ended = Call(call.thread, call.name, found[1])
        if found[2] == "?":
            self.interrupted.append(ended)
        elif int(found[2]) >= 0:
            self.calls.append((ended, int(found[2])))


def _sectors(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """A write in pieces that a disk writes whole."""
    bounds = [at, *range(at - at % SECTOR + SECTOR, at + len(data), SECTOR), at + len(data)]
    return ((start, data[start - at : end - at]) for start, end in pairwise(bounds))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())
