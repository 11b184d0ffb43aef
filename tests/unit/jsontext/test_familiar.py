"""An object is known by its whole text from the second time on, and few are."""

import pytest

from taskgate.jsontext import familiar
from taskgate.jsontext.familiar import Familiar, Known

LEAD = '{"io.'


def known(text: str) -> Known:
    return Known(text, {}, 0)


def met(shape: Familiar, text: str, times: int = 2) -> None:
    for _ in range(times):
        shape.meet(known(text))


def test_an_object_is_known_from_the_second_time_on() -> None:
    shape = Familiar(LEAD)
    met(shape, '{"io.a":1}', times=1)
    assert shape.find('{"io.a":1}', 0) is None
    met(shape, '{"io.a":1}', times=1)
    found = shape.find('[{"io.a":1}]', 1)
    assert found is not None
    assert (found.text, found.size) == ('{"io.a":1}', 10)


@pytest.mark.parametrize("text", ['{"io.a":12}', '{"io.a":1 }', '{"io.a"', "", '{"io.a":1,"b":2}'])
def test_another_text_is_not_known_however_it_begins(text: str) -> None:
    shape = Familiar(LEAD)
    met(shape, '{"io.a":1}')
    assert shape.find(text, 0) is None


def test_the_newest_objects_are_remembered_and_no_more_of_them_than_are_looked_through() -> None:
    shape = Familiar(LEAD)
    texts = [f'{{"io.a":{number}}}' for number in range(familiar.MOST + 1)]
    for text in texts:
        met(shape, text)
    assert [text for text in texts if shape.find(text, 0) is None] == texts[:1]


def test_objects_that_are_met_once_are_not_counted_without_end() -> None:
    shape = Familiar(LEAD)
    for number in range(familiar.MOST_MET + 1):
        met(shape, f'{{"io.a":{number}}}', times=1)
    assert len(shape._met) == 1
    # The last one was not forgotten with the others.
    met(shape, f'{{"io.a":{familiar.MOST_MET}}}', times=1)
    assert len(shape._known) == 1
