"""Watching a forward step: a backend that can be watched tells its `observe` each array of the theory, by name.

`docs/plugins.md` lists the names. Nobody watches by default, and then a step pays for an empty call and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ringlet.core.errors import PluginError, fault_text
from ringlet.core.plugin_manager import PluginManager, Registered


class Observe(Protocol):
    """Called with the arrays of a step as they are computed.

    layer: whose arrays they are, None for those outside the layers. arrays: by name; they are the backend's own, so
    whoever keeps them must not change them.
    """

    def __call__(self, layer: int | None, **arrays: np.ndarray) -> None: ...


def nobody(layer: int | None, **arrays: np.ndarray) -> None:
    """Nobody watches."""


class Observable:
    """A backend that can be watched. observe: is told the arrays of every step."""

    observe: Observe = staticmethod(nobody)

    @abstractmethod
    def logit_lens(self, x: np.ndarray) -> np.ndarray:
        """Logits, float32 (n, d_vocab), if the model ended at this residual stream x (n, d_model). Nobody is told."""


class Observers:
    """What plugins have registered to watch one backend: an object of each class, called array by array.

    A fault in an observer that the user named ends the step; one that was only found is reported and left out.
    """

    def __init__(self, registered: Iterable[Registered], report: Callable[[str], None]) -> None:
        self._report = report
        self._watching: list[tuple[Registered, Any]] = []
        for observer in registered:
            with self._faults_of(observer, "constructor"):
                self._watching.append((observer, observer.cls()))

    def __call__(self, layer: int | None, **arrays: np.ndarray) -> None:
        for name, array in arrays.items():
            for observer, watch in list(self._watching):
                with self._faults_of(observer, name):
                    watch(name, read_only(array), layer)

    @contextmanager
    def _faults_of(self, observer: Registered, what: str) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin does not end the process
            line = f"observer {observer.label}: {what}: {fault_text(error)}"
            if observer.explicit:
                raise PluginError(line) from error
            self._watching = [(other, watch) for other, watch in self._watching if other is not observer]
            self._report(f"{line} (left out)")


def let_plugins_watch(backend: object, plugins: PluginManager) -> None:
    """Have a backend that can be watched tell the observers that plugins have registered, if there are any."""
    registered = plugins.registry("observer")
    if registered and isinstance(backend, Observable):
        backend.observe = Observers(registered.values(), plugins.report)


def read_only(array: np.ndarray) -> np.ndarray:
    """The same numbers, which cannot be changed through this view."""
    view = array.view()
    view.flags.writeable = False
    return view
