"""`python -m devstack`: the demo's servers from the command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from devstack.errors import DevstackError
from devstack.stack import Stack

app = typer.Typer(help="The servers of `make demo`: MySQL, Kafka and Airflow on 127.0.0.1.", no_args_is_help=True)


@app.command()
def fetch(
    tests: Annotated[bool, typer.Option("--tests", help="What the tests need, too.")] = False,
    consumers: Annotated[bool, typer.Option("--consumers", help="What `make test-consumers` needs, too.")] = False,
) -> None:
    """Fetch all software, so that `up` needs no network."""
    Stack().fetch(tests=tests, consumers=consumers)


@app.command()
def up() -> None:
    """Start what does not run, and show where it is."""
    from devstack.demo import show_exports, show_login

    stack = Stack()
    stack.up()
    _show(stack)
    show_login(stack)
    show_exports(stack)


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="End when the first windows are verified.")] = False,
    follower: Annotated[
        bool, typer.Option("--follower", help="Bring a second MySQL to the same rows, and compare the two.")
    ] = False,
) -> None:
    """Run the shop pipeline on the servers, and show what it publishes."""
    from devstack.demo import demo as run_demo

    try:
        run_demo(Stack(with_follower=follower), once=once)
    except KeyboardInterrupt:
        print("ended")


@app.command()
def status() -> None:
    """Show what runs and where."""
    _show(Stack())


@app.command()
def stop() -> None:
    """Stop what was started, and nothing else; the data stay."""
    stopped = Stack().stop()
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@app.command()
def clean(
    downloads: Annotated[bool, typer.Option("--downloads", help="Remove the fetched software too.")] = False,
) -> None:
    """Remove the servers' data."""
    Stack().clean(downloads=downloads)


def _show(stack: Stack) -> None:
    table = Table("server", "state", "where", box=None)
    for state in stack.states():
        table.add_row(state.name, state.condition.value, state.where)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> None:
    """Run the command; a DevstackError becomes one message and exit code 1."""
    try:
        app()
    except DevstackError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
