"""Airflow Variables in a process of its own: a line of JSON in, [key] or [key, value, description]; a line out."""

from __future__ import annotations

import json
import os
import sys

from changefeed.state.variable_store import MetadataVariables


def main() -> None:
    variables, answers = MetadataVariables(), os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        key, *rest = json.loads(line)
        print(json.dumps(variables.set(key, *rest) if rest else variables.get(key)), file=answers, flush=True)


if __name__ == "__main__":
    main()
