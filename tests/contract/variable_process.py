"""Airflow Variables in a process of its own: a line of JSON in, [method, arguments ...]; a line out."""

from __future__ import annotations

import json
import os
import sys

from changefeed.state.variable_store import MetadataVariables


def main() -> None:
    variables, answers = MetadataVariables(), os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(variables, method)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
