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
    tests: Annotated[bool, typer.Option("--tests", help="Also fetch what the tests need. Default: off.")] = False,
    consumers: Annotated[
        bool, typer.Option("--consumers", help="Also fetch what `make test-consumers` needs. Default: off.")
    ] = False,
) -> None:
    """Fetch all software in advance, so that `up` needs no network."""
    Stack().fetch(tests=tests, consumers=consumers)


@app.command()
def up() -> None:
    """Start the servers that are not running, and show their addresses."""
    from devstack.demo import show_exports, show_login

    stack = Stack()
    stack.up()
    _show(stack)
    show_login(stack)
    show_exports(stack)


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Exit when the first windows are verified. Default: run until Ctrl-C.")
    ] = False,
    follower: Annotated[
        bool, typer.Option("--follower", help="Also replicate to a second MySQL, and compare the two. Default: off.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Publish a window a second. Default: a run each minute.")
    ] = False,
) -> None:
    """Run the shop pipeline on the servers, and show the records that it publishes."""
    from devstack.demo import demo as run_demo

    try:
        run_demo(Stack(with_follower=follower, continuous=continuous), once=once)
    except KeyboardInterrupt:
        print("stopped")


@app.command()
def status() -> None:
    """Show which servers run, and their addresses."""
    _show(Stack())


@app.command()
def env() -> None:
    """Print `export` lines for a shell in which `changefeed` works on the servers: eval "$(python -m devstack env)"."""
    print("\n".join(Stack().exports))


@app.command()
def sql() -> None:
    """Run the SQL statements of standard input on the database server as root, and print the rows of queries."""
    from devstack.sql_shell import run_statements

    for row in run_statements(Stack().mysql_root_url, sys.stdin.read()):
        print("\t".join(row))


@app.command()
def stop() -> None:
    """Stop the servers that devstack started. Their data stay."""
    stopped = Stack().stop()
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@app.command()
def clean(
    downloads: Annotated[
        bool, typer.Option("--downloads", help="Also remove the fetched software. Default: off.")
    ] = False,
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
