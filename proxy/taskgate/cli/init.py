"""The work of `init`: write a configuration with comments, from answers or from options.

The text is loaded as `serve` loads it before the file is written, so what is written can be used.
A dollar sign in an answer is doubled: nothing in an answer is a reference to a variable.
"""

import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskgate import config as settings
from taskgate.auth.key_file import KeyFileRefused, read_or_make_keys
from taskgate.cli.exits import FAILED, WRONG_USE, fail
from taskgate.cli.host.server_list import ListedServer, ListInvalid, ServerList, read_list
from taskgate.cli.printing import clean, one_line
from taskgate.clock import SystemEntropy
from taskgate.config import ConfigurationError, Problem
from taskgate.system.secret_files import write_secret
from taskgate.wiring.operator_token import OPERATOR_TOKEN, new_token

_ISSUER: Final = "issuer="
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}(?:/\S*)?|localhost(?:/\S*)?")
"""An address without a scheme."""
_FLAGS: Final = {
    "upstreams.default.url": "--upstream",
    "upstreams.default.command": "--upstream-command",
    "auth.issuers.default.issuer": "--auth",
    "store.redis.url": "--store",
    "server.public_url": "--public-url",
}
"""The option that sets a key."""
_MISSING: Final = {
    "upstream": "--upstream URL, --upstream-command COMMAND or --from FILE",
    "auth": "--auth none or --auth issuer=URL",
    "store": "--store sqlite or --store redis://HOST:PORT/0",
    "public_url": "--public-url URL",
}


class Answers(NamedTuple):
    """The answers of which the file is made.

    Exactly one of `url`, `command` and `listed` is set. `issuer`, `redis` and `public_url` are URLs; None
    means no authentication, SQLite, and the address of the listener. `listed` has the servers of a host.
    """

    url: str | None
    command: tuple[str, ...]
    issuer: str | None
    redis: str | None
    public_url: str | None
    listed: ServerList | None = None


def write_configuration(
    file: Path,
    upstream: str | None,
    command: str | None,
    hosts_file: Path | None,
    auth: str | None,
    store: str | None,
    public_url: str | None,
    yes: bool,
    force: bool,
) -> None:
    """Ask for what no option says, and write the file; the options are those of the command."""
    if [upstream, command, hosts_file].count(None) < 2:
        raise click.UsageError("Give one of --upstream URL, --upstream-command COMMAND and --from FILE.")
    try:
        listed = None if hosts_file is None else read_list(hosts_file)
    except ListInvalid as wrong:
        raise click.UsageError(f"--from: {wrong}.") from None
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists already: give another name, or --force to replace it.")
    questions = _Questions(asks=not yes and _is_terminal(), takes_defaults=yes)
    if upstream is None and command is None and listed is None:
        answer = questions.ask("upstream", "URL of the MCP server, or the command that starts it", None)
        upstream, command = (None, answer) if _url_of(answer) is None else (answer, None)
    auth = auth or questions.ask("auth", "Authentication: none, or issuer=URL of your identity provider", "none")
    store = store or questions.ask(
        "store", "Store of tasks: sqlite, or redis://HOST:PORT/0 for several replicas", "sqlite"
    )
    if public_url is None and auth != "none":
        public_url = questions.ask("public_url", "URL by which hosts reach taskgate", "http://127.0.0.1:8080")
    questions.finish()
    answers = _read(upstream, command, listed, auth, store, public_url)
    text = configuration_text(answers, file.absolute().parent)
    try:
        _validate(text, () if listed is None else listed.variables)
        # An answer may have a key in it, such as one in the query of a URL.
        write_secret(file, text.encode(), replaces=force)
        for key in _keys(answers, file.absolute().parent):
            read_or_make_keys(key, SystemEntropy())
        is_new = _write_token(_operator_token(file.absolute().parent))
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    except FileExistsError:
        raise click.UsageError(f"{file} exists already: give another name, or --force to replace it.") from None
    except OSError as error:
        fail(_NotWritten(f"{file} cannot be written: {error.strerror}"), FAILED)
    except KeyFileRefused as refusal:
        fail(_NotWritten(f"a key beside {file}: {refusal}"), FAILED)
    _print_next(file, answers, has_new_token=is_new)


class _NotWritten(Exception):
    """The file could not be written; the text is for the operator."""


class _Questions:
    """The questions that are asked on a terminal; elsewhere it lists the options that are missing.

    With `takes_defaults` an answer that has a default is not asked for.
    """

    def __init__(self, *, asks: bool, takes_defaults: bool) -> None:
        self._asks = asks
        self._takes_defaults = takes_defaults
        self._missing: list[str] = []

    def ask(self, key: str, text: str, default: str | None) -> str:
        """The answer to a question; a placeholder if it cannot be asked, and then `finish` raises."""
        if self._takes_defaults and default is not None:
            return default
        if self._asks:
            return str(click.prompt(text, default=default, err=True)).strip()
        self._missing.append(_MISSING[key])
        return default or ""

    def finish(self) -> None:
        """Raise click.UsageError if a question could not be asked."""
        if not self._missing:
            return
        missing = "; ".join(self._missing)
        if self._takes_defaults:
            raise click.UsageError(f"Give {missing}.")
        raise click.UsageError(
            f"Standard input is no terminal, so nothing can be asked. Give {missing}; or --yes for the defaults."
        )


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _url_of(text: str) -> str | None:
    """The URL that a text means, such as `localhost:3000/mcp`; None for a command."""
    if "://" in text.partition(" ")[0]:
        return text
    return f"http://{text}" if _ADDRESS.fullmatch(text) else None


def _read(
    upstream: str | None,
    command: str | None,
    listed: ServerList | None,
    auth: str,
    store: str,
    public_url: str | None,
) -> Answers:
    """Read the answers. Raises click.UsageError."""
    if auth != "none" and not auth.startswith(_ISSUER):
        raise click.UsageError("--auth must be none, or issuer=URL.")
    if store != "sqlite" and not store.startswith(("redis://", "rediss://")):
        raise click.UsageError("--store must be sqlite, redis://HOST:PORT/DATABASE or rediss://HOST:PORT/DATABASE.")
    try:
        words = tuple(shlex.split(command or ""))
    except ValueError:
        raise click.UsageError("--upstream-command has a quotation mark or a backslash without its end.") from None
    if upstream is None and listed is None and not words:
        raise click.UsageError("--upstream-command must begin with the name of a program.")
    return Answers(
        url=None if upstream is None else _url_of(upstream) or upstream,
        command=words,
        issuer=auth.removeprefix(_ISSUER) if auth != "none" else None,
        redis=store if store != "sqlite" else None,
        public_url=public_url,
        listed=listed,
    )


# --- the text -------------------------------------------------------------------------------------------------------


def configuration_text(answers: Answers, folder: Path) -> str:
    """The text of the file; `folder` is where it will be, for the keys beside it."""
    return "".join(f"{line}\n" for line in _lines(answers, folder))


def _quoted(text: str) -> str:
    """A text as a YAML scalar, whose dollar signs begin no reference."""
    return _json(text.replace("$", "$$"))


def _lines(answers: Answers, folder: Path) -> Iterator[str]:
    yield "# Configuration of taskgate. Keys that are not here have their defaults."
    yield "#   taskgate check --config FILE     finds mistakes before a start"
    yield "#   taskgate schema > schema.json    is the JSON Schema, for completion in an editor"
    yield "version: 1"
    yield ""
    yield from _server(answers, folder)
    yield ""
    yield from _upstream(answers)
    yield ""
    yield from _auth(answers, folder)
    yield ""
    yield from _store(answers, folder)


def _server(answers: Answers, folder: Path) -> Iterator[str]:
    yield "server:"
    yield "  # The address for hosts. An address of this machine alone needs no TLS: a reverse proxy may end it."
    yield '  listen: "127.0.0.1:8080"'
    if answers.public_url is not None:
        yield "  # The URL by which hosts reach this address. Tokens are issued for it."
        yield f"  public_url: {_quoted(answers.public_url)}"
    yield ""
    yield "admin:"
    yield "  # The address for operators: health, metrics, the commands and the console. Never publish it."
    yield '  listen: "127.0.0.1:9464"'
    yield "  # The file with the token of the commands, and of the console at /ui."
    yield f"  token_file: {_quoted(str(_operator_token(folder)))}"


def _upstream(answers: Answers) -> Iterator[str]:
    yield "# The MCP servers, by name. Add more, each with its own path; the name is in metrics and logs."
    yield "upstreams:"
    if answers.listed is not None:
        for server in answers.listed.servers:
            yield from _listed(server)
        return
    yield "  default:"
    yield "    # The path that hosts use."
    yield "    path: /mcp"
    if answers.url is not None:
        yield f"    url: {_quoted(answers.url)}"
    else:
        yield "    transport: stdio"
        yield f"    command: [{', '.join(map(_quoted, answers.command))}]"
        yield "    # Variables that the program needs. It gets none of the gateway's secrets."
        yield "    # env: {API_KEY: '${API_KEY}'}"
    yield "    # The most calls at once; more of them wait."
    yield "    concurrency: 32"


def _listed(server: ListedServer) -> Iterator[str]:
    """The lines of a server of a host. Its texts have references, so no dollar sign is doubled."""
    yield f"  {server.name}:"
    yield f"    path: {server.path}"
    if server.url is not None:
        yield f"    url: {_json(server.url)}"
    if server.transport != "http":
        yield f"    transport: {server.transport}"
    if server.command:
        yield f"    command: [{', '.join(map(_json, server.command))}]"
    for key, texts in (("env", server.env), ("headers", server.headers)):
        if texts:
            yield f"    {key}:"
            yield from (f"      {_json(name)}: {_json(text)}" for name, text in texts.items())
    if server.cwd is not None:
        yield f"    cwd: {_json(server.cwd)}"


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _auth(answers: Answers, folder: Path) -> Iterator[str]:
    yield "auth:"
    if answers.issuer is None:
        yield "  # All hosts that reach the listener are one caller, and see each other's tasks."
        yield "  # For other machines: mode: required, with an issuer."
        yield "  mode: none"
    else:
        yield "  mode: required"
        yield "  issuers:"
        yield "    default:"
        yield "      # Exactly as the claim iss of its tokens, with or without the slash at the end."
        yield f"      issuer: {_quoted(answers.issuer)}"
        yield "      # The value of the claim aud. Without it: the public URL with the path of the upstream."
        yield "      # audience: [https://mcp.example.com]"
    if answers.redis is not None:
        yield "  context:"
        yield "    # The same file on every replica: by it they know the owner of a task."
        yield f"    key_file: {_quoted(str(_context_key(folder)))}"


def _store(answers: Answers, folder: Path) -> Iterator[str]:
    yield "store:"
    if answers.redis is None:
        yield "  # One gateway with a file: taskgate.db in the data directory ($TASKGATE_DATA_DIR)."
        yield "  backend: sqlite"
        return
    yield "  # Redis or Valkey, shared by all replicas."
    yield "  backend: redis"
    yield "  redis:"
    yield f"    url: {_quoted(answers.redis)}"
    yield "    # username: taskgate"
    yield "    # password: ${VALKEY_PASSWORD}"
    yield ""
    yield "audit:"
    yield "  # The same file on every replica, so that one task has one reference in all logs."
    yield f"  hmac_key_file: {_quoted(str(_audit_key(folder)))}"


def _context_key(folder: Path) -> Path:
    return folder / "taskgate-context.key"


def _audit_key(folder: Path) -> Path:
    return folder / "taskgate-audit.key"


def _write_token(file: Path) -> bool:
    """Write a token of operators; False if there is one, which may be in use. Raises OSError."""
    try:
        write_secret(file, new_token(SystemEntropy()))
    except FileExistsError:
        return False
    return True


def _operator_token(folder: Path) -> Path:
    return folder / OPERATOR_TOKEN


def _keys(answers: Answers, folder: Path) -> tuple[Path, ...]:
    """The files of keys that the configuration names."""
    return () if answers.redis is None else (_context_key(folder), _audit_key(folder))


# --- the file -------------------------------------------------------------------------------------------------------


def _validate(text: str, variables: Sequence[str]) -> None:
    """Load the text, as if these variables were set. Raises ConfigurationError, whose problems name options."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "taskgate.yaml"
        file.write_text(text)
        try:
            settings.load(file, {**dict.fromkeys(variables, "unknown"), **os.environ})
        except ConfigurationError as wrong:
            raise ConfigurationError(
                Problem(path=_option(problem.path), message=problem.message) for problem in wrong.problems
            ) from None


def _option(key: str) -> str:
    """The option that sets a key, or a part of it; the key itself if there is none."""
    return next((flag for prefix, flag in _FLAGS.items() if key.startswith(prefix)), key)


def _print_next(file: Path, answers: Answers, *, has_new_token: bool) -> None:
    base = "http://127.0.0.1:8080" if answers.public_url is None else answers.public_url.rstrip("/")
    click.echo(f"wrote {file}")
    for key in _keys(answers, file.absolute().parent):
        click.echo(f"key   {key} (copy it to every replica)")
    token = shlex.quote(str(_operator_token(file.absolute().parent)))
    notes = [] if has_new_token else ["it was there, and stays"]
    notes += [] if answers.redis is None else ["copy it to every replica"]
    click.echo(f"token {token} ({'; '.join(notes)})" if notes else f"token {token}")
    click.echo(f"check taskgate check --config {shlex.quote(str(file))}")
    click.echo(f"start taskgate serve --config {shlex.quote(str(file))}")
    if answers.listed is None:
        click.echo(f"hosts {one_line(base)}/mcp")
    elif answers.listed.variables:
        click.echo(f"needs {' '.join(answers.listed.variables)} (variables of the gateway's environment)")
    click.echo(f"tasks taskgate tasks ls --token {token}")
    click.echo("pages http://127.0.0.1:9464/ui (sign in with that token)")
    if answers.listed is not None:
        click.echo("hosts read this file from now on:")
        click.echo(clean(answers.listed.replacement(base)))
