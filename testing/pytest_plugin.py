"""The suite as a plugin of pytest: ``@pytest.mark.ringlet("name")`` and the fixture `ringlet_check`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringlet.core.errors import RingletError
from ringlet.testing.checks import Check, CheckFailed, CheckSkipped
from ringlet.testing.suite import checks_of

FIXTURE = "ringlet_check"
MARK = "ringlet(name, plugins=(), model=None): run the test once for each check of what is registered under this name"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check of each mark."""
    if FIXTURE not in metafunc.fixturenames:
        return
    marks = list(metafunc.definition.iter_markers("ringlet"))
    if not marks:
        pytest.fail(f'{FIXTURE} needs a mark that says what is checked: @pytest.mark.ringlet("name")', pytrace=False)
    try:
        checks = [check for mark in marks for check in checks_of(*mark.args, **mark.kwargs)]
    except RingletError as error:
        pytest.fail(str(error), pytrace=False)
    metafunc.parametrize(FIXTURE, [as_test(check) for check in checks], ids=[str(check) for check in checks])


def as_test(check: Check) -> Callable[[], None]:
    """What does not apply is skipped; a failed check is told in a line; an exception of the plugin's keeps its way."""

    def run() -> None:
        try:
            check()
        except CheckSkipped as skipped:
            pytest.skip(str(skipped))
        except CheckFailed as failed:
            pytest.fail(str(failed), pytrace=False)

    return run
