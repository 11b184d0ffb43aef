"""No secret of a configuration is ever shown, whichever field it is in and however it was written."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from taskgate.config import GatewayConfig, effective
from taskgate.config.fields import HIDDEN, MASK, Secret, Section

Loads = Callable[..., GatewayConfig]

GRANT = "mode: client_credentials, token_url: 'https://idp.example.com/token', client_id: gw"
SECRET_WORDS = frozenset({"secret", "password", "passphrase", "key", "token", "value", "secrets", "keys", "tokens"})
"""The last word of a field's name, if the field is one to keep: a `key_file` or a `token_url` is none."""


def written(keys: str) -> str:
    issuers = "{corp: {issuer: 'https://idp.example.com'}}"
    server = f"{{path: /a, url: 'https://reports.internal', credentials: {{{keys}}}}}"
    return f"version: 1\nauth: {{mode: required, issuers: {issuers}}}\nupstreams:\n  reports: {server}\n"


@pytest.mark.parametrize("place", ["mode: header, header: Authorization, value: ", f"{GRANT}, client_secret: "])
@pytest.mark.parametrize("how", ["s3cret", "${S}", "${T:-s3cret}", "${file:FILE}", "Bearer ${S}", "s3cret$${S}"])
def test_a_secret_is_not_shown_however_it_was_written(loads: Loads, tmp_path: Path, place: str, how: str) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    how = how.replace("FILE", str(tmp_path / "secret"))
    config = loads(written(f"{place}'{how}'"), {"S": "s3cret"})
    shown = effective(config)
    key = place.rsplit(maxsplit=1)[-1]
    assert f"      {key} '{MASK}'" in shown.splitlines()
    assert shown.count(MASK) == 1
    for text in (shown, config.model_dump_json(), repr(config), str(config)):
        assert "s3cret" not in text
    section = config.upstreams["reports"].credentials
    assert "s3cret" in f"{section.value} {section.client_secret}"


def test_a_secret_that_is_not_there_is_shown_as_missing(loads: Loads, minimal: str) -> None:
    shown = effective(loads(minimal))
    assert "      client_secret: null" in shown.splitlines()
    assert MASK not in shown


# --- every field -------------------------------------------------------------------------------------------------


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field of a model and of those below it, by its dotted path."""
    for name, field in model.model_fields.items():
        path = f"{above}.{name}".lstrip(".")
        yield path, field
        for part in parts_of(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from fields_of(part, path)


def parts_of(annotation: Any) -> Iterator[Any]:
    """What an annotation is put together from, marks included."""
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


def is_hidden(field: FieldInfo) -> bool:
    return field.repr is False and any(part is HIDDEN for part in (*field.metadata, *parts_of(field.annotation)))


def holds_sections(field: FieldInfo) -> bool:
    """Whether a field has fields of its own, which are judged themselves."""
    return any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts_of(field.annotation))


def shown_secrets(model: type[BaseModel]) -> list[str]:
    """The fields that are called like secrets and are shown. A number, such as a length, is none."""
    return [
        path
        for path, field in fields_of(model)
        if path.split("_")[-1].split(".")[-1] in SECRET_WORDS
        and field.annotation is not int
        and not is_hidden(field)
        and not holds_sections(field)
    ]


def test_no_field_that_is_called_like_a_secret_is_shown() -> None:
    assert shown_secrets(GatewayConfig) == []
    hidden = [path for path, field in fields_of(GatewayConfig) if is_hidden(field)]
    assert hidden == [
        "upstreams.env",
        "upstreams.headers",
        "upstreams.credentials.value",
        "upstreams.credentials.client_secret",
        "store.redis.password",
    ]


def test_a_new_field_that_is_called_like_a_secret_and_shown_would_be_noticed() -> None:
    class Below(Section):
        password: str = ""
        api_key: Secret | None = None
        token: Secret = Field(default="a", repr=False)
        key_file: str = ""
        token_url: str = ""

    class Above(Section):
        below: Mapping[str, tuple[Below, ...]] = {}
        secret: str | None = Field(default=None, repr=False)

    assert shown_secrets(Above) == ["below.password", "below.api_key", "secret"]
