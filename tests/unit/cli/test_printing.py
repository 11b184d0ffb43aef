"""JSON of others, made fit for a terminal."""

import json

from hypothesis import given
from hypothesis import strategies as st

from taskgate.cli.printing import json_line, json_text
from unit.jsontext.test_display import ANY, has_control


@given(st.recursive(ANY, lambda each: st.lists(each) | st.dictionaries(ANY, each), max_leaves=8))
def test_json_has_no_control_character_and_reads_as_what_it_was(document: object) -> None:
    text, line = json_text(document), json_line(document)
    assert not has_control(text, "\n")
    assert not has_control(line, "")
    assert json.loads(text) == json.loads(line) == document
