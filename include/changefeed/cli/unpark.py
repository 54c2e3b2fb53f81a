"""The command unpark, which brings parked tables back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import typer

from changefeed.cli.app import AsJson, PipelineName, app, connections_of, out, print_json
from changefeed.cli.request_options import add_options
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.unpark import UnparkRequest


@app.command()
@add_options(UnparkRequest, tables=typer.Option(metavar="PATTERN"))
def unpark(name: PipelineName, arguments: dict[str, Any], as_json: AsJson = False) -> None:
    """Publish the changes that parked tables miss, once, and publish these tables with the next windows again.

    No window is published meanwhile. A call that failed or was killed continues if it is repeated.
    """
    from changefeed.operations.unpark import requested_tables, unpark
    from changefeed.spark.session import session

    request = UnparkRequest.of(arguments)
    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    records, skip = requested_tables(connections, request), request.skip_changes
    with nullcontext() if skip else session(pipeline, "changefeed.ingest.run") as spark:
        lines = []
        for line in unpark(spark, connections, records, skip=skip):
            lines.append(line)
            if not as_json:
                out.print(f"{name}: {line}")
    if as_json:
        print_json({"pipeline": name, "lines": lines})
