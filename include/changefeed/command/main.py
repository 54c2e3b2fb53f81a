"""Entry point of the `changefeed` command."""

from __future__ import annotations

import logging
import sys

from changefeed.command import backfill, commits, files, position, runs, seek
from changefeed.command import schema as schemas
from changefeed.command.app import EXIT_ERROR, app
from changefeed.errors import ChangefeedError

COMMANDS = (runs, position, backfill, seek, commits, schemas, files)
"""The modules whose import adds commands to `app`."""


def main() -> None:
    """Run the command; an error of ours is a message on stderr and exit code 1, never a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("kafka", "py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        app()
    except ChangefeedError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has enough
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
