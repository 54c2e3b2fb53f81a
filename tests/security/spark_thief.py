"""Attacks of another user of the machine on a running Spark job: on its ports and files, without Spark's client."""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - another user may not be able to import it later
import os
import pickle
import socket
import struct
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lz4.block
import psutil

Address = tuple[str, int]

NOBODY = 65534
_RPC_REQUEST, _RPC_RESPONSE, _CHUNK_REQUEST, _CHUNK = 3, 4, 0, 1
_LZ4_BLOCK = b"LZ4Block"


def as_nobody(attempt: Callable[..., Any], *arguments: object) -> Any:
    """Call ``attempt`` in a process of another user, or of the same user if tests do not run as root."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(attempt(*arguments), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(said)


def from_all(attempt: Callable[[Address], Any], addresses: Iterable[Address]) -> list[Any]:
    """Results of another user's ``attempt`` for each of ``addresses``."""

    def at_once() -> list[Any]:
        with ThreadPoolExecutor(16) as threads:
            return list(threads.map(attempt, addresses))

    return list(as_nobody(at_once))


def family_of(pid: int) -> list[psutil.Process]:
    """The process and its descendants."""
    process = psutil.Process(pid)
    processes = [process, *process.children(recursive=True)]
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def addresses_of(pid: int) -> set[Address]:
    """Addresses at which the process ``pid`` and its descendants listen."""
    return {
        (connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
        for process in family_of(pid)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def sockets_of(pid: int) -> set[str]:
    """Paths of the Unix domain sockets at which the process ``pid`` and its descendants listen."""
    return {
        connection.laddr
        for process in family_of(pid)
        for connection in process.net_connections(kind="unix")
        if connection.laddr and Path(connection.laddr).is_socket()
    }


def can_connect(path: str) -> bool:
    """Whether the Unix domain socket at ``path`` accepts a connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except PermissionError:
            return False
        return True


def stolen_blocks(address: Address, count: int = 4) -> tuple[bytes, str]:
    """Content of the broadcasts that a block manager at ``address`` serves, and its last refusal."""
    stolen, refusal = b"", ""
    for number in range(count):
        try:
            stolen += _decompress(_fetch(address, f"broadcast_{number}_piece0"))
        except TimeoutError:
            return stolen, "silent"
        except (OSError, ValueError, struct.error) as error:
            refusal = str(error)
    return stolen, refusal


def answer_of_gateway(address: Address) -> bytes:
    """A port's answer to a Py4J request for a Java class without the token; b"" if it does not answer."""
    with socket.create_connection(address, timeout=5) as connection, contextlib.suppress(OSError):
        connection.sendall(b"r\nu\nSystem\nrj\ne\n")
        return connection.recv(1000)
    return b""


def environment_of(pid: int) -> bytes:
    """The environment of a process; b"" if it is not readable, or the process has ended."""
    with contextlib.suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _fetch(address: Address, block: str) -> bytes:
    """Spark's network protocol: OpenBlocks in an RpcRequest, then the first chunk of the stream."""
    with socket.create_connection(address, timeout=5) as connection:
        names = [b"any-application", b"driver"]
        message = b"\0" + b"".join(struct.pack(">i", len(name)) + name for name in names)
        message += struct.pack(">ii", 1, len(block)) + block.encode()
        _send(connection, bytes([_RPC_REQUEST]) + struct.pack(">qi", 1, len(message)) + message)
        kind, answer = _receive(connection)
        if kind != _RPC_RESPONSE:
            raise ValueError(answer.decode(errors="replace"))
        stream, chunks = struct.unpack(">qi", answer[13:25])
        assert chunks == 1
        _send(connection, bytes([_CHUNK_REQUEST]) + struct.pack(">qi", stream, 0))
        kind, answer = _receive(connection)
        if kind != _CHUNK:
            raise ValueError(answer.decode(errors="replace"))
        return answer[12:]


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack(">q", len(message) + 8) + message)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    (size,) = struct.unpack(">q", _exactly(connection, 8))
    if not 9 <= size < 1 << 24:
        raise ValueError(f"no frame of Spark's: {size} bytes")
    body = _exactly(connection, size - 8)
    return body[0], body[1:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            raise ValueError(f"closed after {read!r}")
        read += more
    return read


def _decompress(data: bytes) -> bytes:
    """Decompress LZ4BlockOutputStream of net.jpountz: magic, token, sizes and checksum precede each block."""
    plain = b""
    while data.startswith(_LZ4_BLOCK):
        token, packed, size, _ = struct.unpack_from("<Biii", data, 8)
        block = data[21 : 21 + packed]
        plain += block if token & 0xF0 == 0x10 else lz4.block.decompress(block, uncompressed_size=size) if size else b""
        data = data[21 + packed :]
    return plain + data


def open_files(root: Path) -> Iterator[str]:
    """Paths below ``root`` that other users may list, read or write."""
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if mode & 0o077 and not path.is_symlink():
                yield f"{path} {mode & 0o777:04o}"
