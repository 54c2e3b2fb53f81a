"""Which changefeed the driver has: its tasks are run by no other, as what they say may mean something else there."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed import __version__
from changefeed.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class DriversTask:
    """Base of what a driver sends to Spark's workers; it is pickled with the ``version`` of the driver's package."""

    version: str = __version__

    def check_version(self) -> None:
        """Raises SettingsError in a worker that has another version than the driver."""
        if self.version != __version__:
            raise SettingsError(
                f"expected changefeed {self.version} on Spark's workers, as the driver has it, found {__version__}: "
                "tasks of one version may read and publish otherwise in another. Nothing of this task was published. "
                "Install the driver's version on all workers, then run again."
            )
