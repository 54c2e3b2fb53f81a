"""A schema registry that answers slowly, or repeats the client's login in its answers."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tenacity import wait_none

from changefeed.errors import ChangefeedError, RegistryError, RegistryUnavailableError
from changefeed.kafka.schema_registry import client
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.model.connection import AnswerLimits
from changefeed.model.password_source import PasswordSource

Answer = Callable[[bytes], Iterator[bytes]]
"""Parts of the answer to a request."""


@contextmanager
def hostile(answer: Answer) -> Iterator[int]:
    """Start a server that reads a request and sends ``answer``; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                part = connection.recv(65536)
                if not part:
                    return
                request += part
            try:
                for part in answer(request):
                    connection.sendall(part)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # ends `accept`, which would otherwise outlive the socket
        serving.join()
        listener.close()


def registry_at(port: int, password: str = "hush-hush/very+secret") -> Registry:
    return Registry(RegistryConnection(f"http://127.0.0.1:{port}", "me", password, answer_limits=AnswerLimits(1, 1)))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_WAIT", wait_none())
    monkeypatch.setattr(client, "_TRIES", 1)


def _drip(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        yield data[at : at + 1]
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("at_once", "drip"),
    [
        (b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" * 10),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"[" * 1000),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"[" * 1000),
        (b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n", b"[" * 1000),
    ],
)
def test_slow_registry_times_out(at_once: bytes, drip: bytes) -> None:
    def answer(_request: bytes) -> Iterator[bytes]:
        yield at_once
        yield from _drip(drip)

    begin = time.monotonic()
    with hostile(answer) as port, pytest.raises(RegistryUnavailableError):
        registry_at(port).level("any")
    assert time.monotonic() - begin < 15, "the timeout is two seconds"


@pytest.mark.parametrize("status", ["200 OK", "409 No", "422 No", "500 No", "404 No"])
@pytest.mark.parametrize(
    "repeated",
    [
        lambda authorization: authorization.decode(),
        lambda authorization: authorization.split()[1].decode(),
        lambda authorization: authorization.split()[1].decode()[4:20],
        lambda authorization: base64.b64decode(authorization.split()[1]).decode(),
        lambda _: "hush-hush%2Fvery%2Bsecret",
    ],
)
def test_error_hides_a_login_that_the_registry_repeats(status: str, repeated: Callable[[bytes], str]) -> None:
    words: list[str] = []

    def answer(request: bytes) -> Iterator[bytes]:
        (line,) = (line for line in request.split(b"\r\n") if line.lower().startswith(b"authorization"))
        words.append(repeated(line.partition(b": ")[2]))
        for_json = f'{{"message": "you are {words[-1]}", "id": "{words[-1]}"}}'.encode()
        body = for_json if len(words) % 2 else f"you are {words[-1]}".encode()
        yield f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body

    with hostile(answer) as port:
        registry = registry_at(port)
        asks: list[Callable[[], object]] = [lambda: registry.register("s", "{}"), lambda: registry.level("s")]
        for ask in asks:
            said = ""
            try:
                ask()
            except ChangefeedError as error:
                said = str(error)
            assert words[-1] not in said
            assert "hush" not in said
            assert said or status == "200 OK"


def test_error_hides_a_bearer_token_that_the_registry_repeats() -> None:
    """A connection without a user sends what `passwords` returns as a bearer token, for each request another one."""
    received: list[str] = []

    def answer(request: bytes) -> Iterator[bytes]:
        header = next(line for line in request.decode().split("\r\n") if line.startswith("Authorization: "))
        received.append(header)
        body = f'{{"message": "no {header}"}}'.encode()
        yield b"HTTP/1.1 422 x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    source = PasswordSource("registry", ("sh", "-c", "echo pl4nted-$$"))
    with hostile(answer) as port:
        registry = Registry(RegistryConnection(f"http://127.0.0.1:{port}", password_source=source))
        for _ in range(2):
            with pytest.raises(RegistryError) as caught:
                registry.level("any")
            assert "pl4nted" not in str(caught.value)
            assert "repeats the login" in str(caught.value)
    assert all(header.startswith("Authorization: Bearer pl4nted-") for header in received)
    assert len(set(received)) == 2


def test_token_that_no_header_can_have_is_an_error_without_the_token() -> None:
    source = PasswordSource("registry", ("printf", "pl4nted-é"))
    registry = Registry(RegistryConnection("http://127.0.0.1:1", password_source=source))
    with pytest.raises(RegistryUnavailableError, match="expected an ASCII token") as caught:
        registry.level("any")
    assert "pl4nted" not in str(caught.value)


def test_error_hides_a_status_line_that_repeats_the_login() -> None:
    def answer(request: bytes) -> Iterator[bytes]:
        (line,) = (line for line in request.split(b"\r\n") if line.lower().startswith(b"authorization"))
        yield line + b"\r\n\r\n"

    with hostile(answer) as port, pytest.raises(RegistryUnavailableError) as caught:
        registry_at(port).level("any")
    assert "Basic" not in str(caught.value)


def test_answer_without_an_end_is_read_up_to_a_bound() -> None:
    def answer(_request: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n["
        while True:
            yield b"[" * 65536

    with hostile(answer) as port, pytest.raises(RegistryError, match="an answer of more than 8,388,608 bytes"):
        registry_at(port).level("any")
