"""The configuration of what crosses of extensions: the keys under `upstreams.*.extensions`.

What lives here: the keys with types and bounds. What must not: rules between keys (extension_coherence), what floors
below make of them (servers).
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag, WithJsonSchema

from taskgate.config.fields import ONCE_EACH, SOME, Section

# The keys of `_meta` are made so, and those of `capabilities.extensions` after them: the prefix is mandatory there.
_IDENTIFIER = re.compile(
    r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
)
_LONGEST = 256
_WORD = "^[A-Za-z0-9_.-]{1,128}$"
_METHOD = r"^[A-Za-z0-9_$.-]+(/[A-Za-z0-9_$.-]+)*$"


def _method(written: str) -> str:
    if not re.fullmatch(_METHOD, written):
        raise ValueError("must be the name of a method, such as widgets/list")
    return written


def _notification(written: str) -> str:
    if not written.startswith("notifications/") or not re.fullmatch(_METHOD, written):
        raise ValueError("must be the name of a notification, such as notifications/widgets/changed")
    return written


def _word(written: str) -> str:
    if not re.fullmatch(_WORD, written):
        raise ValueError("must be 1 to 128 letters, digits and _ . -")
    return written


def is_identifier(text: str) -> bool:
    """Whether that can be the key of an extension."""
    return len(text) <= _LONGEST and _IDENTIFIER.fullmatch(text) is not None


_Short = StringConstraints(min_length=1, max_length=128)
Method = Annotated[str, _Short, AfterValidator(_method)]
Notification = Annotated[str, _Short, AfterValidator(_notification)]
Word = Annotated[str, AfterValidator(_word), WithJsonSchema({"type": "string", "pattern": _WORD})]


class ExtensionSection(Section):
    """What crosses of one extension, besides its declaration and its metadata."""

    methods: Annotated[tuple[Method, ...], *ONCE_EACH] = ()
    """Requests of hosts."""
    notifications: Annotated[tuple[Notification, ...], *ONCE_EACH] = ()
    """Notifications of the server: in the answer to a request, in a session, and where a filter grants them."""
    filters: Annotated[tuple[Word, ...], *ONCE_EACH] = ()
    """Members of the filter of subscriptions/listen that may be true."""
    result_types: Annotated[tuple[Word, ...], *ONCE_EACH] = ()
    """Values of resultType, besides complete, that its methods may be answered with."""
    cacheable: Annotated[tuple[Method, ...], *ONCE_EACH] = ()
    """Of its methods those whose results say how long they may be kept."""
    eras: Annotated[tuple[Literal["legacy", "modern"], ...], *SOME, *ONCE_EACH] | None = None
    """The eras it is defined in, so that it crosses from one to the other; null means within each era alone."""


TAGS = ("extension in a word", "extension in full")
"""What pydantic puts into the places of problems for these two kinds of values; no key looks like it."""
_WORDS = frozenset({"allow", "deny", "own"})


def _tag(value: object) -> str | None:
    if isinstance(value, dict | ExtensionSection):
        return TAGS[1]
    return TAGS[0] if isinstance(value, str) and value in _WORDS else None


Decision = Annotated[
    Annotated[Literal["allow", "deny", "own"], Tag(TAGS[0])] | Annotated[ExtensionSection, Tag(TAGS[1])],
    Discriminator(
        _tag,
        custom_error_type="extension_decision",
        custom_error_message="must be allow, deny or own, or a mapping such as {methods: [widgets/list]}",
    ),
]


class ExtensionsSection(Section):
    """What crosses of extensions, each named by its identifier as in capabilities.extensions.

    allow: its declaration and metadata, with all methods where taskgate knows the extension; a mapping names what else;
    deny: nothing; own: the gateway's own, which io.modelcontextprotocol/tasks alone is.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Decision] = Field(init=False)

    OF_EXTRA: ClassVar = ExtensionSection
    """The section under a key that is no field."""

    default: Literal["deny", "allow"] = "deny"
    """What becomes of identifiers that nobody names, members of experimental, and capabilities of no revision."""

    @property
    def named(self) -> dict[str, Literal["allow", "deny", "own"] | ExtensionSection]:
        """What is said of each identifier."""
        return self.__pydantic_extra__
