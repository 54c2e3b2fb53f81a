"""The progress of a long command: one line on a terminal, and lines in a log, which can be read again."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

EVERY_SECONDS = 0.2
LOG_EVERY_SECONDS = 10.0
SLICES, TOPIC_PARTITIONS = "slices", "topic-partitions"
"""Names of `Parts`."""


@dataclass(frozen=True)
class Parts:
    """The slices or topic-partitions (``name``) that the tasks of a stage handle: ``done`` of ``total`` so far.

    ``done`` is None if only the number of finished tasks is known.
    """

    name: str
    total: int
    done: int | None


@dataclass(frozen=True)
class Progress:
    """What is done: ``done`` of ``total`` units, and ``rows``, or other things that ``counted`` names.

    ``total`` is 0 if it is not known, and ``rows`` None. ``parts`` are those of tasks.
    """

    done: int
    total: int
    unit: str = "tasks"
    rows: int | None = None
    counted: str = "rows"
    parts: Parts | None = None

    def describe(self, seconds: float) -> str:
        """Units, rows, rows per second and time left, after ``seconds``. If the finished parts are known, they are the
        units."""
        if self.parts and self.parts.done is not None:
            by_parts = replace(self, done=self.parts.done, total=self.parts.total, unit=self.parts.name, parts=None)
            return by_parts.describe(seconds)
        parts = [f"{self.done:,} of {max(self.done, self.total):,} {self.unit}" if self.total else ""]
        if self.rows is not None:
            parts.append("" if self.total and self.unit == self.counted else f"{self.rows:,} {self.counted}")
            parts.append(f"{self.rows / seconds:,.0f} {self.counted}/s" if self.rows and seconds >= 1 else "")
        if 0 < self.done < self.total:
            parts.append(f"{_duration(seconds * (self.total - self.done) / self.done)} left")
        return ", ".join(filter(None, parts))


def log_text(what: str, progress: Progress) -> str:
    """The text of a log for the ``progress`` of the stage ``what``, whose units are tasks; `read_log_text` reads it."""
    texts = [f"{what}: {progress.done} of {max(progress.done, progress.total)} tasks done"]
    if (parts := progress.parts) is not None:
        texts.append(f"{'' if parts.done is None else f'{parts.done} of '}{parts.total} {parts.name}")
    if progress.rows is not None:
        texts.append(f"{progress.rows:,} {progress.counted} so far")
    return ", ".join(texts)


_LOG_TEXT = re.compile(
    r"INFO changefeed\.spark\.progress: (scout|decode|decode and publish|compare|publish): "
    r"(\d{1,15}) of (\d{1,15}) tasks done"
    rf"(?:, (?:(\d{{1,15}}) of )?(\d{{1,15}}) ({SLICES}|{TOPIC_PARTITIONS}))?"
    r"(?:, (\d[\d,]{0,19}) messages so far)?"
)
"""A complete line of a job's log, as `run_as_job` formats it, so that no text of another program is taken for one."""


def read_log_text(line: str) -> tuple[str, Progress] | None:
    """Stage and progress of a line of a job's log with a `log_text`; None for other lines."""
    if (found := _LOG_TEXT.fullmatch(line.rstrip())) is None:
        return None
    what, done, total, parts_done, parts_total, name, messages = found.groups()
    if int(done) > int(total) or int(parts_done or 0) > int(parts_total or 0):
        return None
    parts = None if name is None else Parts(name, int(parts_total), None if parts_done is None else int(parts_done))
    rows = None if messages is None else int(messages.replace(",", ""))
    return what, Progress(int(done), int(total), "tasks", rows, "messages", parts)


def web_page_text(url: str) -> str:
    """The text of a log for the address of Spark's web page, if `spark.ui.enabled` is on; `read_web_page` reads it."""
    return f"Spark's web page: {url}"


_WEB_PAGE = re.compile(
    r"INFO changefeed\.spark\.session: Spark's web page: (https?://[\w.:\[\]-]{1,300}(?:/[\w./~%-]{0,500})?)"
)


def read_web_page(line: str) -> str | None:
    """The address in a line of a job's log with a `web_page_text`; None for other lines."""
    found = _WEB_PAGE.fullmatch(line.rstrip())
    return None if found is None else found[1]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def is_shown() -> bool:
    """Whether progress is shown: stderr is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress_line(what: str, read: Callable[[], Progress]) -> Iterator[None]:
    """Show ``what`` and the progress that ``read`` returns while the block runs, in one line that then disappears.

    Without a terminal nothing is shown. ``read`` is called in another thread, and must not raise.
    """
    if not is_shown():
        yield
        return
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(what, read, ended), name="changefeed-progress", daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()


def _draw(what: str, read: Callable[[], Progress], ended: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()
    # stdout may be a pipe, or JSON: what is printed there is left alone; lines on stderr are printed above this one
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False, redirect_stdout=False) as live:
        while not ended.wait(EVERY_SECONDS):
            text = f"{what}: {read().describe(time.monotonic() - began)}"
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
