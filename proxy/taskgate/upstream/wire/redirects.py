"""Redirects of one server, and what is remembered of them: `Redirects`, `SessionTarget`.

A redirect is followed if it keeps method and body, and stays within the scheme, host and port of the
configured URL. What a server names to one caller may be that caller's own address. So a permanent
redirect is remembered in the `SessionTarget` of the session that got it, and any other one never.
All sessions share only a permanent one that adds or removes a slash at the end of the path. A 404
ends what is remembered, because the target may be gone.

Path and query are sent as they are written (`url_as_written`). For some servers `%2F` is not `/`,
and a change breaks signed URLs.
"""

from typing import Final
from urllib.parse import urljoin

from yarl import URL

from taskgate.egress import ForwardProxy
from taskgate.upstream import failures
from taskgate.upstream.wire.connection import Target
from taskgate.upstream.wire.heads import AnswerHead

PERMANENT: Final = 308
"""The status of a redirect that may be remembered."""


class SessionTarget:
    """The target of the last permanent redirect that one session got, `redirected`; None without one."""

    __slots__ = ("redirected",)

    def __init__(self) -> None:
        self.redirected: Target | None = None


class Redirects:
    """The targets of requests to one server, to which `proxy` leads. Raises ValueError for an invalid
    configured URL.

    - `configured`: the URL that the operator configured.
    - `shared`: where sessions send that remember nothing: that URL, with or without a slash at its end.
    """

    def __init__(self, configured: URL, proxy: ForwardProxy | None = None) -> None:
        self._proxy = proxy
        self.configured: Final = Target(configured, proxy)
        self.shared = self.configured

    def follow(self, answer: AnswerHead, target: Target | None) -> Target:
        """Return where a redirect of `target` leads. Raises UpstreamFailed if it is not followed, as
        a second one, which has no target here."""
        inside = None
        if target is not None and answer.status in failures.KEEPING_REDIRECTS:
            inside = self.inside(answer.location, target)
        if inside is None:
            raise failures.redirected(answer.status)
        return inside

    def inside(self, location: str | None, target: Target) -> Target | None:
        """Return the target of a reference seen at `target`; None if it is invalid or outside of
        the origin."""
        try:
            # The join of a URL would decode its own path.
            url = url_as_written(urljoin(str(target.url), location or ""))
            # `origin()` drops a user name, which must not be taken from a server either.
            inside = bool(location) and url.origin() == self.configured.url.origin() and url.user is None
            return Target(url.with_fragment(None), self._proxy) if inside else None
        except ValueError:
            return None

    def remember(self, target: Target, session: SessionTarget | None) -> None:
        """Send later requests of the session to the target of a permanent redirect, or those of all
        sessions if only a slash differs."""
        is_for_all = _but_for_slash(target.url) == _but_for_slash(self.configured.url)
        if is_for_all:
            self.shared = target
        if session is not None:
            session.redirected = None if is_for_all else target

    def forget(self, session: SessionTarget | None) -> None:
        """Send the next request of the session to the configured URL."""
        if session is not None and session.redirected is not None:
            session.redirected = None
        else:
            self.shared = self.configured


def url_as_written(text: str) -> URL:
    """Return a URL whose path and query stay as they are written.

    Its host is in lower case, and `.` and `..` in its path are resolved. Of what has characters that
    no URL may have, those are encoded. Raises ValueError for an invalid URL.
    """
    url = URL(text)
    if not text.isascii() or not text.isprintable() or " " in text:
        return url
    written = URL(text, encoded=True)
    path = written.raw_path if _DOTS.isdisjoint(written.raw_path.split("/")) else url.raw_path
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=path,
        query_string=written.raw_query_string,
        fragment=url.raw_fragment,
        encoded=True,
    )


_DOTS: Final = frozenset({".", ".."})


def _but_for_slash(url: URL) -> tuple[str, str]:
    """Return path and query of a URL, without a slash at the end of the path."""
    return url.raw_path.removesuffix("/"), url.raw_query_string
