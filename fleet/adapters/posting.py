"""JSON by HTTP POST to one address: bounded in time and size, and nothing that comes back is trusted.

`http.client` and one thread, because no HTTP client bounds an exchange as a whole: their time limits begin anew with
every read, and none covers the look-up of a name. It also follows no redirects and asks no proxy, so that the secret
goes where it was meant to go.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

from fleet.adapters.base import NONSENSE, TIMED_OUT, UNREACHABLE, AdapterFailed
from fleet.errors import UsageError

MOST_BYTES = 1024 * 1024
"""Of a reply; a list of 5,000 groups is half of it."""

Reply = tuple[int, str | None, bytes]
"""Status, address of a redirect, body."""

_SHOWN_CHARACTERS = 300
_UNFIT = re.compile(r"[^\x21-\x7e]")
_PASSING = frozenset({408, 425})


class ExchangeFailed(AdapterFailed):
    """An exchange did not end with a document.

    Attributes:
        code: the status of HTTP, or the one that fits what happened.
        passing: whether the same request may well succeed later.
    """

    def __init__(self, message: str, code: int, *, passing: bool = False) -> None:
        super().__init__(message, code)
        self.passing = passing

    @property
    def is_vague(self) -> bool:
        """Whether what was asked may have been done nevertheless."""
        return self.passing or self.code >= 500 or self.code < 400


class Mailbox:
    """An address to which JSON is posted, one exchange after another.

    Args:
        url: http or https, without a user's name; certificates of https are verified.
        token: sent as a bearer token; None sends none.
        seconds: how long an exchange may take from the look-up of the name to the last byte.

    Raises:
        UsageError: the address or the token cannot be used; the token is not shown.
    """

    def __init__(self, url: str, token: str | None = None, seconds: float = 10.0) -> None:
        self._address = _checked(url)
        if token is not None and (not token or _UNFIT.search(token)):
            raise UsageError("the bearer token is empty, or has characters that no header can carry")
        self._token = token
        self._seconds = seconds

    def __str__(self) -> str:
        """The address without what may be secret in it."""
        return f"{self._address.scheme}://{self._address.netloc}{self._address.path}"

    def post(self, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Post a document; return the object that comes back, empty when there is no content.

        Raises:
            ExchangeFailed: no answer, one that is no success, or none that makes sense.
        """
        body = json.dumps(document).encode()
        connection = self._connection()
        exchange = _Exchange(connection, self._target(), body, {**self._headers(), **(headers or {})})
        try:
            reply = exchange.reply(self._seconds)
        except TimeoutError:
            reason = f"{self}: no whole answer within {self._seconds:g} s"
            raise ExchangeFailed(reason, TIMED_OUT, passing=True) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._broken(error) from error
        return self._understood(*reply)

    def _connection(self) -> HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        if self._address.scheme == "http":
            return HTTPConnection(host, port, timeout=self._seconds)
        # Imported here because it takes as long as all the rest.
        import ssl

        return HTTPSConnection(host, port, timeout=self._seconds, context=ssl.create_default_context())

    def _headers(self) -> dict[str, str]:
        plain = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        return plain if self._token is None else {**plain, "Authorization": f"Bearer {self._token}"}

    def _target(self) -> str:
        path = self._address.path or "/"
        return f"{path}?{self._address.query}" if self._address.query else path

    def _understood(self, status: int, location: str | None, body: bytes) -> dict[str, Any]:
        if 300 <= status < 400:
            told = self._printable((location or "nowhere").partition("?")[0])
            raise ExchangeFailed(f"{self}: it redirects to {told}: redirects are not followed", status)
        if not 200 <= status < 300:
            passing = status >= 500 or status in _PASSING
            raise ExchangeFailed(f"{self}: status {status}: {self._said(body)}", status, passing=passing)
        if len(body) > MOST_BYTES:
            raise ExchangeFailed(f"{self}: the reply is larger than {MOST_BYTES} bytes", NONSENSE)
        return self._document(body)

    def _document(self, body: bytes) -> dict[str, Any]:
        if not body.strip():
            return {}
        document = _parsed(body)
        if not isinstance(document, dict):
            raise ExchangeFailed(f"{self}: the reply is no JSON object: {self._said(body)}", NONSENSE)
        return document

    def _said(self, body: bytes) -> str:
        """Return what a reply that is no success says, on one line."""
        document = _parsed(body) if len(body) <= MOST_BYTES else None
        told = document.get("error") if isinstance(document, dict) else None
        return self._printable(str(told) if told else body.decode("utf-8", "replace")) or "no reason"

    def _printable(self, text: str) -> str:
        """Return foreign text in a form fit for a row and a terminal, without the token if it was echoed."""
        shown = text.replace(self._token, "***") if self._token else text
        plain = "".join(c if c.isprintable() else " " for c in shown[: 2 * _SHOWN_CHARACTERS])
        return " ".join(plain.split())[:_SHOWN_CHARACTERS]

    def _broken(self, error: Exception) -> ExchangeFailed:
        # A certificate that is wrong now is wrong in a second, too.
        passing = type(error).__name__ != "SSLCertVerificationError"
        reason = self._printable(f"{type(error).__name__}: {error}")
        code = UNREACHABLE if isinstance(error, OSError) else NONSENSE
        return ExchangeFailed(f"{self}: {reason}", code, passing=passing)


def _checked(url: str) -> SplitResult:
    if _UNFIT.search(url):
        raise UsageError("the adapter service's address has characters that no address has")
    address = urlsplit(url)
    if address.username is not None or address.password is not None:
        raise UsageError("the adapter service's address names a user: put the secret into a variable, with --token-env")
    try:
        usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"the adapter service's address {url.partition('?')[0]} is no http:// or https:// URL")
    return address


class _Exchange:
    """One request and its reply, in a thread that is left to itself when it takes too long."""

    def __init__(self, connection: HTTPConnection, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self._request = target, body, dict(headers)
        self._reply: Future[Reply] = Future()
        # http.client forgets it as soon as the headers are read.
        self._socket: socket.socket | None = None

    def reply(self, seconds: float) -> Reply:
        """Return the reply; raise TimeoutError, or what went wrong."""
        Thread(target=self._run, name="exchange", daemon=True).start()
        try:
            return self._reply.result(seconds)
        finally:
            self._reply.cancel()
            self._hang_up()

    def _run(self) -> None:
        # The one who waited may have gone by then, and wants to hear nothing.
        with suppress(InvalidStateError), closing(self._connection):
            try:
                reply = self._exchanged()
            except BaseException as error:
                self._reply.set_exception(error)
            else:
                self._reply.set_result(reply)

    def _exchanged(self) -> Reply:
        self._connection.connect()
        self._socket = self._connection.sock
        if self._reply.cancelled():
            # What is sent now would be acted on behind everybody's back.
            raise TimeoutError("given up while the name was looked up")
        target, body, headers = self._request
        self._connection.request("POST", target, body, headers)
        with self._connection.getresponse() as response:
            return response.status, response.getheader("Location"), _read(response)

    def _hang_up(self) -> None:
        """End the exchange wherever it is: closing alone would not wake the thread that reads."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _read(response: HTTPResponse) -> bytes:
    """Return the body, and one byte more than is allowed of one that is too large."""
    body = response.read(MOST_BYTES + 1)
    if len(body) <= MOST_BYTES and response.length:
        raise ConnectionResetError(f"the reply ends {response.length} bytes before its end")
    if not body and response.length is None and not response.chunked:
        # To http.client the end of the connection ends headers, too.
        raise ConnectionResetError("the reply ends before its content")
    return body


def _parsed(body: bytes) -> Any:
    """Return the value that JSON text describes; None when it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
