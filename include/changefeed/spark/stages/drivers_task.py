"""The version check of tasks: workers run only tasks of a driver with the same version of changefeed."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed import __version__
from changefeed.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class DriversTask:
    """Base of the tasks that a driver sends to workers; ``version`` is the version of the driver's package."""

    version: str = __version__

    def check_version(self) -> None:
        """Raise SettingsError in a worker with another version than the driver."""
        if self.version != __version__:
            raise SettingsError(
                f"expected changefeed {self.version} on Spark's workers, as on the driver, found {__version__}: "
                "another version may read and publish in another way. Nothing of this task was published. Install the "
                "driver's version on all workers, then run again."
            )
