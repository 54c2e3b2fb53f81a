"""Tests of promises, which hold on a server with its default settings and on one with everything on."""

from __future__ import annotations

import pytest
from long_form import long

_EVERYTHING = pytest.param("everything", marks=pytest.mark.extended)

on_both_settings = pytest.mark.parametrize("server_settings", ["stock", _EVERYTHING], indirect=True)
"""For a test whose servers come from `server_settings`; others have stock servers, or what CHANGEFEED_SERVERS says."""

on_stock_servers_first = pytest.mark.parametrize("server_settings", ["stock", *long("everything")], indirect=True)
"""The same, for a test with many cases: `make test-all` runs them on servers with default settings."""

with_everything = pytest.mark.parametrize("server_settings", [_EVERYTHING], indirect=True)
"""For a test that needs GTIDs on MySQL."""
