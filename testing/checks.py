"""The frame of the conformance suite: a check has a name and a body, and comes out ok, failed or skipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ringlet.core.errors import PluginError, RingletError, fault_text

Status = Literal["ok", "failed", "skipped"]


class CheckFailed(AssertionError):  # noqa: N818 - an outcome
    """What is checked does not do as it should; the message says in one line how."""


class CheckSkipped(Exception):  # noqa: N818 - an outcome
    """There is nothing to check; the message says why."""


@dataclass(frozen=True)
class Check:
    """One property of a plugin's class. Call it: it returns where the property holds.

    Raises CheckFailed where it does not, CheckSkipped where it does not apply, and whatever the class itself raises.
    """

    name: str
    body: Callable[[], None]

    def __call__(self) -> None:
        self.body()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Outcome:
    """What came of a check. reason: in one line, empty where it is ok."""

    check: str
    status: Status
    reason: str = ""


def outcome_of(check: Check) -> Outcome:
    """Run the check; whatever it raises, an interrupt apart, is a reason."""
    try:
        check()
    except KeyboardInterrupt:
        raise
    except CheckSkipped as skipped:
        return Outcome(check.name, "skipped", str(skipped))
    except CheckFailed as failed:
        return Outcome(check.name, "failed", str(failed))
    except BaseException as error:  # a plugin does not end the process
        return Outcome(check.name, "failed", fault_text(error))
    return Outcome(check.name, "ok")


def require(holds: bool, otherwise: str) -> None:
    """Raises CheckFailed with this line unless it holds."""
    __tracebackhide__ = True  # pytest shows where it was called
    if not holds:
        raise CheckFailed(otherwise)


def unless_refused(body: Callable[[], None]) -> Callable[[], None]:
    """The body of a check of something that a plugin may refuse, in one line, by raising RingletError."""

    def run() -> None:
        try:
            body()
        except PluginError:
            raise
        except RingletError as refusal:
            raise CheckSkipped(f"refused: {refusal}") from refusal

    return run
