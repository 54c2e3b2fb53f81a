"""Entry point of the `changefeed` command."""

from __future__ import annotations

import gc
import inspect
import logging
import re
import sys

from changefeed.cli import (
    backfill,
    check,
    commits,
    files,
    init,
    replicate,
    runs,
    seek,
    snapshot,
    status,
    transforms,
    unpark,
    verify,
)
from changefeed.cli import schema as schemas
from changefeed.cli.app import EXIT_ERROR, PrintableLog, app, print_json
from changefeed.errors import ChangefeedError

COMMANDS = (
    init,
    check,
    runs,
    status,
    seek,
    backfill,
    unpark,
    snapshot,
    replicate,
    verify,
    commits,
    schemas,
    files,
    transforms,
)
"""The modules that add commands to `app`, in the order in which help lists them."""


def sort_commands() -> None:
    """Sort the application's commands into the order of COMMANDS, and give each the first sentence of its docstring for
    the list of commands, which otherwise cuts it at the width of the terminal."""
    modules = [module.__name__ for module in COMMANDS]
    app.registered_commands.sort(key=lambda command: modules.index(getattr(command.callback, "__module__", "")))
    for command in app.registered_commands:
        paragraph = " ".join(inspect.cleandoc(command.callback.__doc__ or "").split("\n\n")[0].split())
        command.short_help = re.split(r"(?<=\.) ", paragraph)[0]


class _StderrLines(logging.Handler):
    """Writes to the current sys.stderr, which a line of progress replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def main() -> None:
    """Run the command. A ChangefeedError becomes a message on stderr and exit code 1, without a traceback.

    With --json it is also printed on stdout, as {"error": message}.
    """
    lines = _StderrLines()
    lines.setFormatter(PrintableLog("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    for noisy in ("airflow", "py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # changefeed's own errors have the details
    sort_commands()
    try:
        app()
    except ChangefeedError as error:
        message = f"{type(error).__name__}: {error}"
        print(message, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        if "--json" in sys.argv:
            print_json({"error": message})
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has closed it
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # otherwise Python's shutdown scans all modules, for half a second


if __name__ == "__main__":
    main()
