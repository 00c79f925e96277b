"""The one place where a failure of this telemetry ends: counted, logged once, and the engine goes on."""

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class Guard:
    """Runs our code inside of an engine's."""

    def __init__(self) -> None:
        self._num_errors = 0
        self._has_logged = False

    def run(self, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T | None:
        """What the function returns; None when it fails."""
        try:
            return function(*arguments, **keywords)
        except Exception:  # whatever it is, no request may fail for a number about it
            self._num_errors += 1
            if not self._has_logged:
                self._has_logged = True
                _logger.exception(
                    "HiSparse telemetry: a failure, counted in hisparse_telemetry_errors_total; later ones are not logged"
                )
            return None

    def take_errors(self) -> int:
        """Failures since the last call."""
        num_errors, self._num_errors = self._num_errors, 0
        return num_errors
