"""The page of the console: `ConsolePage` answers the requests below `/ui`, whatever carries them.

    GET    /ui              index.html, as for the address of each view; the style sheet and the scripts lie below
    GET    /ui/session      the name and the role of a bearer token, or of the session
    POST   /ui/session      sign in with a bearer token, and get a cookie and `page_key`
    DELETE /ui/session      sign out

A session is the cookie and `page_key`, which the page sends in a header with each request.

The page is the same for all, so it needs no token. All that it shows comes from `/api/v1`.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath
from typing import Final, NamedTuple

import orjson

from taskgate.clock import Entropy
from taskgate.operators.access import COOKIE, SECRET_BYTES, SESSION_SECONDS, ApiError, Operator, OperatorAccess

PATH: Final = "/ui"
SESSION: Final = f"{PATH}/session"
_VIEW: Final = re.compile(
    rf"{PATH}/(tasks(/t_[A-Za-z0-9_-]{{22}})?|servers|callers|refusals|sessions|configuration)"
).fullmatch
"""The addresses of views, which the page reads itself."""
_KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_JSON: Final = {**_HEADERS, "Content-Type": "application/json"}


class ConsoleReply(NamedTuple):
    """An answer. `is_audited` tells whether it has a line in the audit log."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    operator: Operator | None = None
    is_audited: bool = False


class _File(NamedTuple):
    body: bytes
    headers: Mapping[str, str]


class ConsolePage:
    """The files of the page, and its sessions, which `access` has."""

    def __init__(self, access: OperatorAccess, entropy: Entropy) -> None:
        self._access = access
        self._entropy = entropy
        self._page = _read("index.html", "text/html; charset=utf-8")
        names = (each.name for each in files(__package__).iterdir())
        kinds = ((name, _KINDS.get(PurePath(name).suffix)) for name in names)
        self._files = {f"{PATH}/{name}": _read(name, kind) for name, kind in kinds if kind is not None}

    def answer(
        self, *, method: str, path: str, headers: Mapping[str, str], authorizations: list[str], address: str
    ) -> ConsoleReply:
        """Answer a request. `headers` finds a name in any case; `address` is canonical."""
        try:
            if path == SESSION:
                return self._answer_session(method, headers, authorizations, address)
            file = self._page if path == PATH or _VIEW(path) else self._files.get(path)
            if file is None:
                raise ApiError(404, "not_found", "the console has no such path")
            if method != "GET":
                raise _other_method("GET")
        except ApiError as error:
            has_token = method == "POST" or bool(authorizations)
            is_audited = path == SESSION and has_token and error.status in (401, 403)
            answered = {**_JSON, **error.headers}
            return ConsoleReply(error.status, orjson.dumps(error.document()), answered, None, is_audited)
        if headers.get("If-None-Match") == file.headers["ETag"]:
            return ConsoleReply(304, b"", file.headers)
        return ConsoleReply(200, file.body, file.headers)

    def _answer_session(
        self, method: str, headers: Mapping[str, str], authorizations: list[str], address: str
    ) -> ConsoleReply:
        match method:
            case "GET":
                return _session_of(self._access.identify(headers, authorizations, address, method))
            case "POST":
                chance = self._entropy.token(2 * SECRET_BYTES)
                operator, key, page_key = self._access.sign_in(headers, authorizations, address, chance)
                cookie = _cookie(key, SESSION_SECONDS, headers)
                return _session_of(operator, cookie, is_audited=True, page_key=page_key)
            case "DELETE":
                operator = self._access.identify(headers, [], address, method)
                self._access.sign_out(headers)
                return _session_of(operator, _cookie("", 0, headers), is_audited=True)
        raise _other_method("GET, POST, DELETE")


def _session_of(
    operator: Operator, cookie: str | None = None, *, is_audited: bool = False, page_key: str | None = None
) -> ConsoleReply:
    headers = _JSON if cookie is None else {**_JSON, "Set-Cookie": cookie}
    document = {"name": operator.name, "role": operator.role}
    if page_key is not None:
        document["page_key"] = page_key
    return ConsoleReply(200, orjson.dumps(document), headers, operator, is_audited)


def _cookie(key: str, seconds: int, headers: Mapping[str, str]) -> str:
    # TLS may end in front of the listener, so the origin tells.
    secure = "; Secure" if headers.get("Origin", "").lower().startswith("https:") else ""
    return f"{COOKIE}={key}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _other_method(allowed: str) -> ApiError:
    return ApiError(405, "method_not_allowed", f"use {allowed}", Allow=allowed)


def _read(name: str, kind: str) -> _File:
    body = files(__package__).joinpath(name).read_bytes()
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return _File(body, {**_HEADERS, "Content-Type": kind, "Cache-Control": "no-cache", "ETag": tag})
