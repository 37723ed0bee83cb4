"""The conformance suite: what Ringlet asks of every sampler, backend and architecture, its own and yours.

``ringlet plugins check NAME`` runs it and prints a report. In tests, with pytest:

    import pytest
    from ringlet.testing import checks_of

    @pytest.mark.parametrize("check", checks_of("fresh", plugins=["fresh.py"]), ids=str)
    def test_conformance(check):
        check()

As a plugin of pytest (``-p ringlet.testing``, or ``pytest_plugins = ["ringlet.testing"]`` in the root's conftest.py)
it brings a mark and a fixture that do the same, and turn what does not apply into a skip:

    @pytest.mark.ringlet("fresh")
    def test_conformance(ringlet_check):
        ringlet_check()

It is no entry point of pytest: nobody's test run imports it unasked.
"""

from __future__ import annotations

from ringlet.testing.checks import Check, CheckFailed, CheckSkipped, Outcome, outcome_of, require
from ringlet.testing.suite import checks_of

__all__ = ["Check", "CheckFailed", "CheckSkipped", "Outcome", "checks_of", "outcome_of", "require"]

pytest_plugins = ("ringlet.testing.pytest_plugin",)  # read by pytest alone
