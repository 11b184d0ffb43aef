"""The report of a gateway that has started, `StartupReport`, and the pages at `/` of both listeners.

`cli` logs the report, or shows it as a banner on a terminal. It has no secret. A server's URL is shown as
scheme and host, a program by its first word. What came from references of the file is masked. The pages say
what listens here to people who open its address in a browser.
"""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.config import BindAddress, GatewayConfig
from taskgate.config.addresses import origin_of
from taskgate.listener.answers import FRONT_PAGE
from taskgate.wiring.authentication import metadata_documents, resource_of


class MountReport(NamedTuple):
    """A mount: the name of its server, the URL for hosts, and the origin or program of the server."""

    upstream: str
    url: str
    server: str


class StartupReport(NamedTuple):
    """A started gateway.

    - `listen`, `admin`: HOST:PORT of the listeners for hosts and for operators
    - `admin_url`: the URL of the listener for operators
    - `mounts`: in the order of the configuration
    - `store`: the backend; `store_place`: its file or URL, None for one in memory
    - `data_directory`: None if nothing is in it
    - `audit`: the files of the audit log, `stdout` for standard output
    - `proxies`: those that lead to servers and issuers, without passwords
    - `has_console`: whether operators may sign in
    """

    version: str
    listen: str
    admin: str
    admin_url: str
    mounts: tuple[MountReport, ...]
    store: str
    store_place: str | None
    data_directory: str | None
    audit: tuple[str, ...]
    proxies: tuple[str, ...] = ()
    has_console: bool = False

    def lines(self, token: str | None = None, token_file: str | None = None) -> Iterator[str]:
        """Return the lines of the banner, for people.

        The address of the console signs in with `token`: browsers send nothing of what is behind the `#`.
        """
        yield f"taskgate {self.version}"
        yield ""
        width = max(len(mount.url) for mount in self.mounts)
        for mount in self.mounts:
            yield f"  {mount.url:<{width}}  {mount.upstream}: {mount.server}"
        yield ""
        key = "" if token is None else f"#token={token}"
        for name, text in (
            ("operators", self.admin_url),
            *((("console", f"{self.admin_url}/ui{key}"),) if self.has_console else ()),
            *((("its token", token_file),) if token_file else ()),
            ("store", self.store if self.store_place is None else f"{self.store}, {self.store_place}"),
            ("data directory", self.data_directory or "none"),
            ("audit log", ", ".join(self.audit) or "none"),
            *((("proxy", ", ".join(self.proxies)),) if self.proxies else ()),
        ):
            yield f"  {name:<15} {text}"


def startup_report(
    config: GatewayConfig,
    data_directory: Path | None,
    *,
    audit: tuple[str, ...],
    listen: tuple[str, int],
    admin: tuple[str, int],
    has_console: bool,
) -> StartupReport:
    """Return the report of a gateway with these bound addresses; `audit` is as in `StartupReport`."""
    hide, place = config.references.hide, _store_place(config, data_directory)
    return StartupReport(
        version=__version__,
        listen=str(BindAddress(host=listen[0], port=listen[1])),
        admin=str(BindAddress(host=admin[0], port=admin[1])),
        admin_url=_admin_url(config, admin),
        mounts=tuple(
            MountReport(name, resource_of(config, listen[1], upstream.path), shown_server(config, name))
            for name, upstream in config.upstreams.items()
        ),
        store=config.store.backend,
        store_place=None if place is None else hide(place),
        data_directory=None if data_directory is None else str(data_directory),
        audit=tuple(map(hide, audit)),
        proxies=tuple(map(hide, config.to_egress().lines())),
        has_console=has_console,
    )


def _admin_url(config: GatewayConfig, admin: tuple[str, int]) -> str:
    scheme = "http" if config.admin.tls.cert_file is None else "https"
    return f"{scheme}://{BindAddress(host=admin[0], port=admin[1])}"


def shown_server(config: GatewayConfig, upstream: str) -> str:
    """Return the origin of a server's URL, or its program, without what came from references."""
    section = config.upstreams[upstream]
    # Arguments of a program may be secrets, and so may the path of a URL.
    return config.references.hide(section.command[0] if section.command else origin_of(section.url or ""))


def shown_time(moment: datetime | None) -> str | None:
    """Return a moment as documents for operators have it, in whole seconds."""
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _store_place(config: GatewayConfig, data_directory: Path | None) -> str | None:
    match config.store.backend:
        case "sqlite":
            return str(config.store.sqlite.to_options(data_directory).path)
        case "redis":
            redis = config.store.redis
            nodes = ", ".join(map(str, redis.sentinel.nodes))
            return nodes or redis.url
    return None


# --- the pages at / ---------------------------------------------------------------------------------------------------


def public_documents(config: GatewayConfig, port: int, admin: tuple[str, int]) -> Mapping[str, bytes]:
    """Return what is public, by path: the documents of RFC 9728, and the page for people.

    `port` is that of the listener for hosts, and `admin` the address of the other one.
    """
    documents = dict(metadata_documents(config, port))
    if all(each.path != FRONT_PAGE for each in config.upstreams.values()):
        documents[FRONT_PAGE] = hosts_page(config, port, admin)
    return documents


def hosts_page(config: GatewayConfig, port: int, admin: tuple[str, int]) -> bytes:
    """Return the page of the listener for hosts. Strangers are not told which servers there are."""
    lines = [
        "<p>This address is for MCP hosts, such as Claude Code and VS Code. They call tools of MCP servers here.</p>"
    ]
    server = config.server
    # A reverse proxy on this machine brings strangers.
    brings_strangers = server.public_url is not None or server.allowed_hosts or server.trusted_proxies
    if server.listen.is_loopback and not brings_strangers:
        lines.append("<h2>Add a server to a host</h2>")
        for name, upstream in config.upstreams.items():
            url = resource_of(config, port, upstream.path)
            lines += [
                f"<p>{escape(name)}: <code>{escape(url)}</code></p>",
                f"<pre>claude mcp add --transport http {escape(shlex.quote(name))} {escape(shlex.quote(url))}</pre>",
            ]
        if BindAddress(host=admin[0], port=admin[1]).is_loopback:
            operators = _admin_url(config, admin)
            lines.append(f'<p>For operators: <a href="{operators}/">{operators}/</a></p>')
    else:
        lines.append("<p>Add the URL of a server to a host, with its path. Who operates this gateway knows it.</p>")
    return _page("taskgate", lines)


def operators_page(*, has_console: bool, metrics: str | None) -> bytes:
    """Return the page of the listener for operators; `metrics` is the path of the metrics, if there are any."""
    console = (
        '<li><a href="/ui">Console</a>: tasks, servers, callers. Sign in with a token of operators.</li>'
        if has_console
        else "<li>No token is configured (<code>admin.token_file</code>), so console and API are off.</li>"
    )
    shown = "" if metrics is None else f'<li><a href="{escape(metrics)}">Metrics</a> for Prometheus</li>'
    probes = '<li><a href="/readyz?verbose">State</a> of the gateway and its servers</li>'
    lines = ["<p>This address is for operators of taskgate.</p>", "<ul>", console, probes, shown, "</ul>"]
    return _page(f"taskgate {__version__}", lines)


def _page(name: str, lines: list[str]) -> bytes:
    head = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>taskgate</title></head><body>'
    return "\n".join([head, f"<h1>{escape(name)}</h1>", *lines, "</body></html>", ""]).encode()
