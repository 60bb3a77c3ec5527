"""An HTTP server made of bare sockets that answers each request as badly as it is told."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

Answer = Callable[[socket.socket, Event], None]
"""What is done with a connection whose request was read; the event tells that the test is over."""


@dataclass(frozen=True)
class Request:
    """A request as it came.

    Attributes:
        line: its first line.
        headers: by lower-case name.
        document: its body.
    """

    line: str
    headers: dict[str, str]
    document: dict[str, Any]


@dataclass
class Rogue:
    """A server on a free port of this host.

    Attributes:
        answers: what is done with the first, second, ... request; the last one again and again.
        abilities: the same for those that ask what the service can do, which may come at any time.
        requests: what came.
        inquiries: what came of the latter.
    """

    answers: Sequence[Answer]
    abilities: Sequence[Answer] = field(default_factory=lambda: [replying(200, {})])
    requests: list[Request] = field(default_factory=list)
    inquiries: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._serve)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/hook"

    def __enter__(self) -> Rogue:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        # Closing alone does not wake who accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.settimeout(20)
                answer = self._next_answer(_read(connection))
                with suppress(OSError):
                    answer(connection, self._over)

    def _next_answer(self, request: Request) -> Answer:
        asks = request.document.get("action") == "get_worker_adapter_info"
        came, answers = (self.inquiries, self.abilities) if asks else (self.requests, self.answers)
        came.append(request)
        return answers[min(len(came), len(answers)) - 1]


def _read(connection: socket.socket) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536) or _gone()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65_536) or _gone()
    return Request(first, headers, json.loads(body))


def _gone() -> bytes:
    raise ConnectionResetError("the client hung up within its request")


def raw(data: bytes) -> Answer:
    """Send these bytes and hang up."""
    return lambda connection, over: connection.sendall(data)


def replying(status: int, body: object = None, **headers: str) -> Answer:
    """Reply with this status, and an object as JSON or bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def silent(connection: socket.socket, over: Event) -> None:
    """Say nothing until the other side has hung up."""
    connection.recv(1)


def dripping(head: bytes) -> Answer:
    """Send `head`, then a byte now and then: no single read takes long, and there is no end."""

    def answer(connection: socket.socket, over: Event) -> None:
        connection.sendall(head)
        while not over.wait(0.02):
            connection.sendall(b" ")

    return answer


def resetting(connection: socket.socket, over: Event) -> None:
    """Break the connection so that the other side meets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
