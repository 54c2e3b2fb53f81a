"""A checkpoint in the memory of a continuous run, which plans each window from the end of the one before."""

from __future__ import annotations

from changefeed.model.checkpoint import Checkpoint, check_forward, stale


class HeldCheckpointStore:
    """A `CheckpointStore` with the checkpoint of one pipeline. It ends with the process: the windows are sealed in the
    commit log, from which the pipeline's own store is moved (`ingest.commit.commit_sealed`)."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def load(self, pipeline: str) -> Checkpoint | None:
        """See `CheckpointStore`."""
        return self._checkpoint if pipeline == self._checkpoint.pipeline else None

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """See `CheckpointStore`."""
        check_forward(expected, new)
        self.replace(expected, new)

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """See `CheckpointStore`."""
        if expected != self._checkpoint:
            raise stale(new.pipeline, expected, self._checkpoint)
        self._checkpoint = new

    def pipelines(self) -> list[str]:
        """See `CheckpointStore`."""
        return [self._checkpoint.pipeline]

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        """See `CheckpointStore`; a run removes no checkpoint."""
        raise NotImplementedError

    def load_schemas(self, pipeline: str) -> str | None:  # noqa: ARG002 - the interface
        """See `CheckpointStore`; the copy is in the pipeline's own store, from which the task `plan` restores it."""
        return None

    def save_schemas(self, pipeline: str, text: str) -> None:
        """See `CheckpointStore`; nothing is kept."""
