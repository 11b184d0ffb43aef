"""docs/tracing.md has every attribute that a span can have, and no other; and what it says in numbers is so."""

import re
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import export
from opentelemetry.trace import span

from taskgate.config.sections.telemetry import TracingSection
from taskgate.sessions import upstream_tracing
from taskgate.telemetry import span_annotations
from taskgate.telemetry.opentelemetry import sdk, tracer

PAGE = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text(encoding="utf-8")


def named_in(module: object) -> set[str]:
    """What a module names that is spelt as attributes are."""
    texts = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return {text for text in texts if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", text)}


def test_every_attribute_is_on_the_page_once_and_no_other() -> None:
    _, _, rest = PAGE.partition("## What spans say\n")
    rows = re.findall(r"^\| (`.*?`) \| (?:both|SERVER|CLIENT) \|", rest, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(named_in(tracer) | named_in(upstream_tracing) | named_in(span_annotations))


@pytest.mark.parametrize(
    "said",
    [
        f"more than {span._TRACECONTEXT_MAXIMUM_TRACESTATE_LENGTH} characters",
        f"first {tracer.MAX_ARGUMENTS} characters",
        f"`{sdk.OTLP_PATH}` is added",
        f"{export._DEFAULT_MAX_QUEUE_SIZE} at most",
        f"as soon as there are {export._DEFAULT_MAX_EXPORT_BATCH_SIZE} of them",
    ],
)
def test_what_it_says_in_numbers_is_so(said: str) -> None:
    assert said in " ".join(PAGE.split())


def test_it_waits_as_long_as_the_page_says() -> None:
    assert (sdk.SHUTDOWN_TIMEOUT, "waits two seconds for the last" in PAGE) == (2.0, True)
    assert (export._DEFAULT_SCHEDULE_DELAY_MILLIS, "every five seconds" in PAGE) == (5000, True)


def test_it_names_every_key_of_the_section_and_no_other() -> None:
    shown = re.findall(r"^  (\w+):", PAGE, re.MULTILINE)
    told = re.findall(r"`(trust_incoming|record_arguments|sample_ratio): \w+`", PAGE)
    assert {*shown, *told} == TracingSection.model_fields.keys()
