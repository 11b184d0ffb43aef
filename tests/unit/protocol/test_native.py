"""Whoever translates for servers with tasks of their own keeps the promise of it."""

from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.native import NativeDialect


def test_the_legacy_era_has_a_translator_for_tasks_of_servers() -> None:
    native: NativeDialect = LegacyUpstream("1", ExtensionPolicy()).native
    assert all(hasattr(native, name) for name in vars(NativeDialect) if not name.startswith("_"))
