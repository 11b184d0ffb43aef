"""Configurations, as the tests of `config` write them."""

from unit.config.conftest import file, loads, minimal, with_tokens

__all__ = ["file", "loads", "minimal", "with_tokens"]
