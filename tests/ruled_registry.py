"""A schema registry with rules of compatibility: Avro's own, in front of one that takes any schema.

`devstack.schema_registry` knows levels and no rules. This asks it for the level and the versions of a subject before it
passes a new schema on, and answers as Confluent's registry does where Avro's Java library finds them incompatible. It
knows which subjects have a level of their own, too.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from avro_java import JavaAvro

_REGISTERS = re.compile(r"/subjects/([^/]+)/versions")
_CONFIGURES = re.compile(r"/config/([^/?]+)(\?.*)?")


class RuledRegistry:
    """The registry at ``upstream`` with rules; use as a context manager. ``url`` is its own.

    Who asks may not change the levels of the subjects in ``read_only``. ``before`` is called with method and path of
    each request.
    """

    def __init__(self, upstream: str, java: JavaAvro) -> None:
        self.read_only: set[str] = set()
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        own_levels: set[str] = set()
        configuring = threading.Lock()  # a level and `own_levels` change together
        ruled = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                ruled.before(self.command, self.path)
                with configuring if _CONFIGURES.fullmatch(self.path) else nullcontext():
                    refusal = _refusal_of_level(self.command, self.path, own_levels, ruled.read_only)
                    status, answer = refusal or _forward(upstream, java, self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RuledRegistry:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _refusal_of_level(method: str, path: str, own_levels: set[str], read_only: set[str]) -> tuple[int, bytes] | None:
    """What Confluent's registry says where a subject has no level of its own, or it may not be changed."""
    match = _CONFIGURES.fullmatch(path)
    if not match:
        return None
    subject, query = unquote(match[1]), match[2] or ""
    if method != "GET" and subject in read_only:
        return 403, b'{"error_code":40301,"message":"User is denied operation WRITE_COMPATIBILITY on this server."}'
    if method == "PUT":
        own_levels.add(subject)
    elif subject not in own_levels and "defaultToGlobal=true" not in query:
        message = f"Subject '{subject}' does not have subject-level compatibility configured"
        return 404, json.dumps({"error_code": 40408, "message": message}).encode()
    elif method == "DELETE":
        own_levels.remove(subject)
    return None


def _forward(upstream: str, java: JavaAvro, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    match = _REGISTERS.fullmatch(path)
    if method == "POST" and match and (why := _mismatch(upstream, java, match[1], json.loads(body or b"")["schema"])):
        message = f"Schema being registered is incompatible with an earlier schema, details: [{why}]"
        return 409, json.dumps({"error_code": 409, "message": message}).encode()
    return _asked(f"{upstream}{path}", method, body)


def _mismatch(upstream: str, java: JavaAvro, subject: str, schema: str) -> str:
    """What Avro has against ``schema`` as the next version of ``subject``; '' where it fits."""
    level = _json(f"{upstream}/config/{subject}?defaultToGlobal=true").get("compatibilityLevel", "BACKWARD")
    versions = _json(f"{upstream}/subjects/{subject}/versions", [])
    for version in versions if level.endswith("_TRANSITIVE") else versions[-1:]:
        other = _json(f"{upstream}/subjects/{subject}/versions/{version}")["schema"]
        pairs = [(schema, other)] * level.startswith(("BACKWARD", "FULL"))
        pairs += [(other, schema)] * level.startswith(("FORWARD", "FULL"))
        for reader, writer in pairs:
            if why := java.mismatch(reader, writer):
                return why
    return ""


def _json(url: str, default: Any = None) -> Any:
    status, body = _asked(url)
    return json.loads(body) if status == 200 else ({} if default is None else default)


def _asked(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"} if body else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
