"""JSON posted to servers that misbehave, over real sockets."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from fleet.adapters.posting import MOST_BYTES, ExchangeFailed, Mailbox
from fleet.clock import boottime
from fleet.errors import UsageError
from tests.adapters.rogue import Answer, Rogue, dripping, raw, replying, resetting, silent
from tests.adapters.tls import SAID, tls_server
from tests.processes.running import wait_until

SECRET = "s3cret-of-the-service"
GOOD = {"worker_group_id": "g"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"


def failure(answer: Answer, seconds: float = 10.0, token: str | None = None) -> ExchangeFailed:
    """Return how an exchange fails with a server that answers so."""
    with Rogue([answer]) as server, pytest.raises(ExchangeFailed) as failed:
        Mailbox(server.url, token, seconds).post({"action": "x"})
    return failed.value


def test_what_is_sent() -> None:
    """An exchange is one POST of JSON with the token and the headers given; it gives the reply's object."""
    with Rogue([replying(200, GOOD)]) as server:
        said = Mailbox(server.url + "?a=b", SECRET).post({"action": "x"}, {"Idempotency-Key": "k"})
    assert said == GOOD
    [request] = server.requests
    assert request.line == "POST /hook?a=b HTTP/1.1"
    assert request.document == {"action": "x"}
    named = ("content-type", "authorization", "idempotency-key")
    assert [request.headers[name] for name in named] == ["application/json", f"Bearer {SECRET}", "k"]


def test_no_token_is_no_header() -> None:
    """Without a token nothing is said of who asks, and a reply without content is an empty object."""
    with Rogue([replying(204, b"")]) as server:
        assert Mailbox(server.url).post({}) == {}
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "code", "passing", "words"),
    [
        pytest.param(replying(429, {"error": "Capacity exceeded"}), 429, False, "Capacity exceeded", id="full"),
        pytest.param(replying(404, {"error": "not found"}), 404, False, "not found", id="unknown"),
        pytest.param(replying(401, b"<html>no\x1b[31m\nway</html>"), 401, False, "no [31m way", id="html"),
        pytest.param(replying(500, {"error": "broken"}), 500, True, "broken", id="broken"),
        pytest.param(replying(503, b""), 503, True, "no reason", id="away"),
        pytest.param(replying(408, {}), 408, True, "status 408", id="late"),
        pytest.param(replying(200, b"<html>hello</html>"), 502, False, "no JSON object: <html>hello", id="no JSON"),
        pytest.param(replying(200, [1]), 502, False, "no JSON object", id="a list"),
        pytest.param(replying(200, b"[" * 100_000), 502, False, "no JSON object", id="deep"),
        pytest.param(replying(200, b'{"a": ' + b"9" * 9_999 + b"}"), 502, False, "no JSON object", id="a huge number"),
        pytest.param(replying(200, b" " * (MOST_BYTES + 1)), 502, False, "larger than", id="huge"),
        pytest.param(
            replying(302, b"", Location="http://elsewhere/?key=1"),
            302,
            False,
            "redirects to http://elsewhere/:",
            id="redirect",
        ),
        pytest.param(raw(HEAD + b'{"worker'), 503, True, "ends 42 bytes before its end", id="half a body"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"),
            502,
            True,
            "Incomplete",
            id="half a chunk",
        ),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nContent-"), 503, True, "before its content", id="half a head"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.2\r\n"), 502, True, "BadStatusLine", id="no HTTP"),
        pytest.param(raw(b""), 503, True, "Remote", id="nothing"),
        pytest.param(resetting, 503, True, "Connection", id="reset"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5_000 + b"\r\n"), 502, True, "headers", id="many headers"
        ),
    ],
)
def test_every_bad_answer_has_its_number(answer: Answer, code: int, passing: bool, words: str) -> None:
    """What a server answers badly is told in one line, with a number, and whether it may pass."""
    failed = failure(answer)
    assert (failed.code, failed.passing) == (code, passing), failed
    assert words in str(failed)
    assert str(failed).isprintable()
    assert len(str(failed)) < 500


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silent, id="silence"),
        pytest.param(dripping(b""), id="a slow status"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nX: "), id="slow headers"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\n\r\n"), id="a slow body without a length"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n"), id="a slow body"),
    ],
)
def test_the_time_limit_is_for_the_whole(answer: Answer) -> None:
    """However small the pieces in which a reply comes: after its time the exchange is over, and so is its thread."""
    before = boottime()
    with Rogue([answer]) as server:
        with pytest.raises(ExchangeFailed, match=r"within 0\.3 s") as failed:
            Mailbox(server.url, seconds=0.3).post({})
        wait_until(lambda: not [each for each in threading.enumerate() if each.name == "exchange"], "the thread ends")
    assert (failed.value.code, failed.value.passing) == (504, True)
    assert boottime() - before >= 0.29


def test_nobody_listens() -> None:
    """A refused connection may pass."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ExchangeFailed, match="ConnectionRefusedError") as failed:
        Mailbox(f"http://127.0.0.1:{port}").post({})
    assert (failed.value.code, failed.value.passing) == (503, True)


def test_what_was_given_up_is_not_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was given up while its address was looked up is not sent when the look-up ends."""
    gate = threading.Event()
    look_up = socket.getaddrinfo

    def slow(*arguments: object, **named: object) -> object:
        assert gate.wait(20)
        return look_up(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(20)
        with pytest.raises(ExchangeFailed, match="no whole answer"):
            Mailbox(f"http://127.0.0.1:{listener.getsockname()[1]}/", seconds=0.1).post({})
        gate.set()
        with closing(listener.accept()[0]) as connection:
            connection.settimeout(20)
            assert connection.recv(100) == b""


def test_redirects_do_not_carry_the_secret_away() -> None:
    """A redirect is not followed: nobody else gets the token."""
    with Rogue([replying(200, GOOD)]) as other:
        failed = failure(replying(307, b"", Location=other.url), token=SECRET)
    assert failed.code == 307
    assert other.requests == []


@pytest.mark.parametrize("echo", [{"error": f"no Bearer {SECRET}"}, f"you said {SECRET}".encode() + b"!" * 300])
def test_an_echoed_secret_is_not_shown(echo: object) -> None:
    """A service that repeats the token in its reply does not bring it into a message (SE03)."""
    failed = failure(replying(403, echo), token=SECRET)
    assert "***" in str(failed)
    assert SECRET not in str(failed)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/", "no http"),
        ("host:80/hook", "no http"),
        ("http://", "no http"),
        ("http://host:99999/?key=1", "no http"),
        ("http://user:pass@host/", "--token-env"),
        ("http://host/a b", "characters"),
        ("http://host/a\r\nX: y", "characters"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(url: str, words: str) -> None:
    """An address that is none, names a user, or could smuggle a header is refused, and no secret in it is shown."""
    with pytest.raises(UsageError) as refused:
        Mailbox(url)
    assert words in str(refused.value)
    assert "pass@" not in str(refused.value)
    assert "key=1" not in str(refused.value)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "schlüssel"])
def test_tokens_that_no_header_carries_are_refused(token: str) -> None:
    """A token that cannot be sent is refused without being shown."""
    with pytest.raises(UsageError) as refused:
        Mailbox("http://host/", token)
    assert not token or token not in str(refused.value)


def test_a_certificate_is_verified(tmp_path: Path) -> None:
    """A service whose certificate nobody vouches for is refused, and that does not pass."""
    with tls_server(tmp_path) as url, pytest.raises(ExchangeFailed, match="CERTIFICATE_VERIFY_FAILED") as failed:
        Mailbox(url).post({})
    assert (failed.value.code, failed.value.passing) == (503, False)


def test_https_speaks_to_who_is_vouched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an authority of one's own in SSL_CERT_FILE the service is spoken to."""
    with tls_server(tmp_path) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert Mailbox(url).post({}) == SAID
