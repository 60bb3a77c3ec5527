"""A service behind TLS, whose certificate is its own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

SAID = {"said": "hello"}


class _Greeter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"said": "hello"}')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def tls_server(directory: Path) -> Iterator[str]:
    """Serve on a free port of this host; give the address. The certificate lies in `certificate.pem`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(directory))
    server = HTTPServer(("127.0.0.1", 0), _Greeter)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _certificate(directory: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes a certificate with the openssl command, which is not installed")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    paths = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *made, *named, *paths], check=True, capture_output=True, timeout=30)
    return certificate, key
