"""The Kafka cluster of a pipeline, and how records are published to it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from changefeed.errors import SettingsError
from changefeed.pipelines.section import ConnectionId, Positive, Section
from changefeed.publish_settings import PublishSettings


class KafkaSettings(Section):
    """The Kafka cluster, and how records are published to it."""

    connection: ConnectionId
    """Connection id of the Kafka cluster."""
    transaction_rows: Positive = PublishSettings.transaction_rows
    """A Kafka transaction is closed after so many records, or after `transaction_seconds`."""
    transaction_seconds: Positive = int(PublishSettings.transaction_seconds)
    transaction_timeout_seconds: Positive = int(PublishSettings.transaction_timeout_seconds)
    """The broker aborts a transaction whose producer stands still for so long; it allows 15 minutes by default."""
    compression: Literal["lz4", "zstd", "snappy", "gzip", "none"] = "lz4"
    compression_level: int | None = None
    """The codec's, as Kafka's `compression.lz4.level` and its like; null is the codec's own default."""
    timestamps: Literal["event", "publish"] = "event"
    """What records have as their time: when the row was changed, or when it was published."""
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    lease_seconds: Positive = 15
    """A run that gave no sign of life for so long counts as dead, and the next one takes over."""

    @property
    def publishing(self) -> PublishSettings:
        """How a task publishes with these settings."""
        return PublishSettings(
            transaction_rows=self.transaction_rows,
            transaction_seconds=self.transaction_seconds,
            transaction_timeout_seconds=self.transaction_timeout_seconds,
            compression=self.compression,
            compression_level=self.compression_level,
            timestamps=self.timestamps,
        )

    @model_validator(mode="after")
    def _closes_before_the_broker_aborts(self) -> KafkaSettings:
        if self.transaction_seconds >= self.transaction_timeout_seconds:
            raise ValueError(
                f"transaction_seconds, {self.transaction_seconds}, must be less than transaction_timeout_seconds, "
                f"{self.transaction_timeout_seconds}: the broker aborts a transaction that is open for longer"
            )
        return self

    @model_validator(mode="after")
    def _has_the_level(self) -> KafkaSettings:
        try:
            _ = self.publishing
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self
