"""A stand-in for a Kubernetes cluster, which needs containers: it stores objects as the API server does, and runs each
pod as a process of this machine.

spark-submit, Spark's driver and Airflow use it with their own clients over HTTP. A pod's process is started by
docker/entrypoint.sh with the variables and arguments of the pod. Its volumes are folders, whose paths replace those of
the pod. What it does not show: images, the rights of service accounts, network policies, resources.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from devstack.home import PROJECT
from devstack.port import LOCALHOST
from devstack.spark_cluster import spark_home

Object = dict[str, Any]
_PATH = re.compile(r"/apis?/(?:[^/]+/)?v\d[^/]*/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(?:/([^/]+))?")
_IMAGE_JOBS = "/opt/changefeed/jobs"
_DUMB_INIT = """\
#!/bin/sh
if [ "$1" = --single-child ]; then
    shift 2
    exec "$@"
fi
shift
trap 'trap "" TERM; kill -TERM 0' TERM
"$@" &
child=$!
wait $child
code=$?
while kill -0 $child 2> /dev/null; do
    wait $child
    code=$?
done
exit $code
"""
"""As dumb-init: it starts a program, and passes signals to it, or to the whole process group."""
_MOUNT_SECONDS = 60.0


def matches(labels: Object, selector: str) -> bool:
    """Whether ``labels`` fulfil a selector with `=`, `!=`, `in` and `notin`."""
    for term in re.split(r",(?![^(]*\))", selector):
        if among := re.fullmatch(r"(\S+) (in|notin) \((.*)\)", term.strip()):
            values = {value.strip() for value in among[3].split(",")}
            fulfilled = (labels.get(among[1]) in values) == (among[2] == "in")
        elif "!=" in term:
            name, value = term.split("!=")
            fulfilled = labels.get(name) != value
        else:
            name, _, value = term.replace("==", "=").partition("=")
            fulfilled = labels.get(name) == value
        if term and not fulfilled:
            return False
    return True


def merged(old: Any, new: Any) -> Any:
    """A merge patch, which apply patches of whole objects are, too."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {name: value for name, value in old.items() if new.get(name, ...) is not None}
    return kept | {name: merged(old.get(name), value) for name, value in new.items() if value is not None}


def patched(old: Object, steps: list[Object]) -> Object:
    """A JSON patch: add, replace and remove of members."""
    new: Object = json.loads(json.dumps(old))
    for step in steps:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].strip("/").split("/"))
        place = new
        for part in path:
            place = place.setdefault(part, {})
        if step["op"] == "remove":
            place.pop(last, None)
        else:
            place[last] = step["value"]
    return new


@dataclass
class Pod:
    """A pod's process, and its folder with volumes, variables and log."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def ask_to_end(self) -> None:
        """Send SIGTERM to the first process, as a node does."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """Kill all processes."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Cluster:
    """The API server at `url` and the node, whose pods are in `pods` by name; ``environment`` is that of the image.

    Without a node (``has_node``), pods stay pending until a test changes their status. ``refusals`` are statuses of the
    next answers.
    """

    namespace = "feeds"

    def __init__(self, folder: Path, environment: dict[str, str], *, has_node: bool = True) -> None:
        self.folder, self.image_environment, self.has_node = folder, environment, has_node
        self.refusals: list[int] = []
        self.pods: dict[str, Pod] = {}
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[int, str, str, Object]] = []
        self.requests: list[tuple[str, str]] = []
        self.changed = threading.Condition(threading.RLock())
        self._server = ThreadingHTTPServer((LOCALHOST, 0), type("Handler", (_Handler,), {"cluster": self}))
        self._server.daemon_threads = True
        self.url = f"http://{LOCALHOST}:{self._server.server_address[1]}"
        programs = folder / "programs"
        programs.mkdir(parents=True)
        (programs / "dumb-init").write_text(_DUMB_INIT)
        (programs / "dumb-init").chmod(0o755)

    def start(self) -> None:
        """Answer requests."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Kill all pods, and answer no more."""
        for pod in list(self.pods.values()):
            pod.kill()
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self) -> Path:
        """A client's configuration."""
        path = self.folder / "kubeconfig"
        named = {"name": "stand-in"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stand-in",
            "clusters": [named | {"cluster": {"server": self.url}}],
            "contexts": [named | {"context": {"cluster": "stand-in", "user": "stand-in", "namespace": self.namespace}}],
            "users": [named | {"user": {}}],
        }
        path.write_text(json.dumps(content))
        return path

    def events_after(self, known: int) -> list[tuple[int, str, str, Object]]:
        """The changes after the first ``known`` ones; waits up to five seconds for one."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.events) > known, 5)
            return self.events[known:]

    def all(self, kind: str, labels: str = "") -> list[Object]:
        """The objects of a kind, as `pods`."""
        with self.changed:
            found = [each for (of, _), each in self.objects.items() if of == kind]
        return [each for each in found if matches(each["metadata"].get("labels") or {}, labels)]

    def put(self, kind: str, name: str, new: Object) -> Object:
        """Store an object, and run it if it is a new pod."""
        with self.changed:
            event = "MODIFIED" if (kind, name) in self.objects else "ADDED"
            meta = new.setdefault("metadata", {})
            meta |= {"name": name, "namespace": self.namespace, "resourceVersion": str(len(self.events) + 1)}
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            if kind == "pods" and event == "ADDED":
                new["status"] = {"phase": "Pending", "podIP": LOCALHOST}
                self.pods[name] = Pod(self.folder / name)
                if self.has_node:
                    threading.Thread(target=self._run, args=(name, new), daemon=True).start()
            self.objects[kind, name] = new
            self.events.append((len(self.events) + 1, event, kind, new))
            self.changed.notify_all()
            return new

    def delete(self, kind: str, name: str) -> Object | None:
        """Delete an object, and what it owns; a pod after its process has ended, within 30 seconds."""
        with self.changed:
            old = self.objects.get((kind, name))
        if old is None:
            return None
        if kind == "pods":
            pod = self.pods[name]
            self.put(kind, name, merged(old, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
            pod.ask_to_end()
            threading.Thread(target=self._remove, args=(name, pod), daemon=True).start()
        else:
            self._forget(kind, name)
        return old

    def _remove(self, name: str, pod: Pod) -> None:
        if pod.process is not None:
            with suppress(subprocess.TimeoutExpired):
                pod.process.wait(30)
            pod.kill()
        self._forget("pods", name)

    def _forget(self, kind: str, name: str) -> None:
        with self.changed:
            old = self.objects.pop((kind, name), None)
            if old is None:
                return
            self.events.append((len(self.events) + 1, "DELETED", kind, old))
            owned = [
                (of, each["metadata"]["name"])
                for (of, _), each in self.objects.items()
                if any(
                    owner["uid"] == old["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences") or ()
                )
            ]
            self.changed.notify_all()
        for of, each in owned:
            self.delete(of, each)

    def _run(self, name: str, pod: Object) -> None:
        """Do what a node does with a pod: mount its volumes, run its container, and report how it ended."""
        own = self.pods[name]
        try:
            paths = self._mount(own.folder, pod)
            self._start(own, pod, paths)
            assert own.process is not None
            ready = [{"type": "Ready", "status": "True"}]
            self._report(
                name, {"phase": "Running", "conditions": ready}, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            )
            code = own.process.wait()
            own.kill()  # with the first process, the container ends
        except Exception as error:
            own.log.write_text(f"{type(error).__name__}: {error}")
            code = 128
        ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}
        self._report(name, {"phase": "Failed" if code else "Succeeded"}, {"terminated": ended})

    def _report(self, name: str, status: Object, state: Object) -> None:
        with self.changed:
            pod = self.objects.get(("pods", name))
            if pod is not None:
                container = pod["spec"]["containers"][0]["name"]
                of_container = {"name": container, "image": "image", "imageID": "", "restartCount": 0, "state": state}
                statuses = [of_container | {"ready": "running" in state}]
                self.put("pods", name, merged(pod, {"status": {**status, "containerStatuses": statuses}}))

    def _mount(self, folder: Path, pod: Object) -> dict[str, str]:
        """Create the pod's volumes; returns folders of this machine by path in the pod."""
        volumes = {}
        for volume in pod["spec"].get("volumes") or ():
            target = folder / volume["name"]
            target.mkdir(parents=True)
            volumes[volume["name"]] = str(target)
            for name, content in self._content(volume).items():
                (target / name).write_bytes(content)
            if "secret" in volume:
                target.chmod(0o500)
        mounts = pod["spec"]["containers"][0].get("volumeMounts") or ()
        return {mount["mountPath"].rstrip("/"): volumes[mount["name"]] for mount in mounts}

    def _content(self, volume: Object) -> dict[str, bytes]:
        if "secret" in volume:
            data = self._await("secrets", volume["secret"]["secretName"])["data"]
            return {name: base64.b64decode(value) for name, value in data.items()}
        if "configMap" in volume:
            data = self._await("configmaps", volume["configMap"]["name"])["data"]
            return {name: value.encode() for name, value in data.items()}
        return {}

    def _await(self, kind: str, name: str) -> Object:
        """An object that may be created after the pod which needs it."""
        with self.changed:
            if not self.changed.wait_for(lambda: (kind, name) in self.objects, _MOUNT_SECONDS):
                raise LookupError(f"no {name} in {kind}")
            return self.objects[kind, name]

    def _start(self, own: Pod, pod: Object, paths: dict[str, str]) -> None:
        container = pod["spec"]["containers"][0]
        paths = {**paths, _IMAGE_JOBS: str(PROJECT / "jobs")}

        def of_this_machine(text: str) -> str:
            for path, folder in sorted(paths.items(), key=lambda item: -len(item[0])):
                text = text.replace(path, folder)
            return text

        values = {each["name"]: self._value(each, pod) for each in container.get("env") or ()}
        hosts = own.folder / "hosts"
        (names := ["localhost", socket.gethostname()]).extend(self._services(pod))
        hosts.write_text("".join(f"{LOCALHOST} {name}\n" for name in names))
        own.environment = {
            **self.image_environment,
            "PATH": f"{self.folder / 'programs'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_HOME": str(spark_home()),
            "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}",
            "TMPDIR": str(own.folder),
            **{name: of_this_machine(value) for name, value in values.items()},
        }
        own.command = [of_this_machine(argument) for argument in container.get("args") or ()]
        with own.log.open("wb") as log:
            own.process = subprocess.Popen(
                ["bash", str(PROJECT / "docker" / "entrypoint.sh"), *own.command],
                env=own.environment,
                cwd=own.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _services(self, pod: Object) -> Iterator[str]:
        """The names by which the JVM of the pod reaches services, which a driver waits for."""
        labels = pod["metadata"].get("labels") or {}
        with self.changed:
            if labels.get("spark-role") == "driver":
                self.changed.wait_for(lambda: any(kind == "services" for kind, _ in self.objects), _MOUNT_SECONDS)
            for kind, name in self.objects:
                if kind == "services":
                    yield f"{name}.{self.namespace}.svc"

    def _value(self, variable: Object, pod: Object) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value") or "")
        if "secretKeyRef" in source:
            chosen = source["secretKeyRef"]
            return base64.b64decode(self._await("secrets", chosen["name"])["data"][chosen["key"]]).decode()
        found: Any = pod
        for part in source["fieldRef"]["fieldPath"].split("."):
            found = found[part]
        return str(found)


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read `Cluster.requests`."""

    def _do(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"null") if size else None
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.cluster.requests.append((self.command, self.path))
        if self.cluster.refusals:
            return self._refuse(self.cluster.refusals.pop(0), "refused by the test")
        found = _PATH.fullmatch(url.path)
        if found is None or found[1] != self.cluster.namespace:
            return self._refuse(404, f"no {url.path}")
        _, kind, name, part = found.groups()
        if self.headers.get("Upgrade"):
            return self._refuse(503, "no WebSockets")
        if self.command == "GET" and query.get("watch") == "true":
            return self._watch(kind, query)
        if self.command == "GET" and part == "log":
            return self._send_text(self.cluster.pods[name].log)
        method = {"GET": self._get, "POST": self._post, "PUT": self._put, "PATCH": self._patch, "DELETE": self._remove}
        return method[self.command](kind, name, query, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do

    def _get(self, kind: str, name: str | None, query: dict[str, str], _: Any) -> None:
        if name is None:
            items = self.cluster.all(kind, query.get("labelSelector", ""))
            meta = {"resourceVersion": str(len(self.cluster.events))}
            self._send({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
        elif (found := self.cluster.objects.get((kind, name))) is not None:
            self._send(found)
        else:
            self._refuse(404, f"{kind} {name!r} not found")

    def _post(self, kind: str, _: str | None, _query: dict[str, str], body: Any) -> None:
        name = body["metadata"]["name"]
        if (kind, name) in self.cluster.objects:
            return self._refuse(409, f"{kind} {name!r} already exists")
        return self._send(self.cluster.put(kind, name, body), 201)

    def _put(self, kind: str, name: str | None, _query: dict[str, str], body: Any) -> None:
        self._send(self.cluster.put(kind, str(name), body))

    def _patch(self, kind: str, name: str | None, _query: dict[str, str], body: Any) -> None:
        with self.cluster.changed:
            old = self.cluster.objects.get((kind, str(name)), {})
            if not old and "apply" not in self.headers["Content-Type"]:
                return self._refuse(404, f"{kind} {name!r} not found")
            new = patched(old, body) if isinstance(body, list) else merged(old, body)
            return self._send(self.cluster.put(kind, str(name), new))

    def _remove(self, kind: str, name: str | None, query: dict[str, str], _: Any) -> None:
        if name is not None:
            old = self.cluster.delete(kind, name)
            return self._refuse(404, f"{kind} {name!r} not found") if old is None else self._send(old)
        for each in self.cluster.all(kind, query.get("labelSelector", "")):
            self.cluster.delete(kind, each["metadata"]["name"])
        return self._send({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        """Send changes, a line each, until the client closes the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        known = int(query.get("resourceVersion") or 0)
        with suppress(OSError):
            while True:
                new = self.cluster.events_after(known)
                known += len(new)
                for _, event, of, value in new:
                    labels = value["metadata"].get("labels") or {}
                    if of == kind and matches(labels, query.get("labelSelector", "")):
                        self.wfile.write(json.dumps({"type": event, "object": value}).encode() + b"\n")
                self.wfile.flush()

    def _send_text(self, path: Path) -> None:
        self._send_bytes(path.read_bytes() if path.exists() else b"", "text/plain", 200)

    def _send(self, value: Object, status: int = 200) -> None:
        self._send_bytes(json.dumps(value).encode(), "application/json", status)

    def _refuse(self, status: int, message: str) -> None:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
        self._send(body, status)

    def _send_bytes(self, content: bytes, kind: str, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
