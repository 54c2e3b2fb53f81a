"""The files of jobs/: each can be loaded, and takes the job's file as its first argument."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path

import pytest

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.py"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_job_takes_its_file_first(job: Path) -> None:
    arguments = runpy.run_path(str(job))["ARGUMENTS"]
    assert isinstance(arguments, argparse.ArgumentParser)
    first = next(action for action in arguments._actions if not action.option_strings)
    assert first.dest == "job"
