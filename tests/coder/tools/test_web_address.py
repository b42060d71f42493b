"""Which addresses are asked, and that it is those that were looked at."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coupler.permission.web_requests import FetchError, is_public, request_once, resolved_addresses
from tables import table

NAME = "pinned.example"


@table(
    ("address", "is_it"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("127.8.9.10", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("240.0.0.1", False),
        ("::", False),
        ("::1", False),
        ("fe80::1", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::127.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::93.184.215.14", True),
        ("2002:7f00:1::", False),
        ("2002:a9fe:a9fe::1", False),
    ],
)
def test_only_what_anybody_could_ask_is_public(address: str, is_it: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) == is_it


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What each name means, look for look; there is no other."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *more: Any, **options: Any) -> Any:
        if isinstance(host, str) and host in known:
            return [entry for each in known[host].pop(0) for entry in real(each, port, *more, **options)]
        return real(host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setenv("no_proxy", "*")
    return known


def test_one_private_address_among_public_ones_is_one_too_many(names: dict[str, list[list[str]]]) -> None:
    names[NAME] = [["93.184.215.14", "127.0.0.1"]]
    with pytest.raises(FetchError, match=r"pinned\.example is 127\.0\.0\.1, which is not public"):
        asyncio.run(resolved_addresses(NAME, 80, may_be_private=False))


class Door(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Door) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_asked(
    server: HTTPServer, names: dict[str, list[list[str]]]
) -> None:
    # A second look would find nothing more, and fail.
    names[NAME] = [["127.0.0.1"]]
    url = httpx.URL(f"http://{NAME}:{server.server_port}/")
    response = asyncio.run(request_once(url, may_be_private=True))
    assert (response.status, response.body.decode()) == (200, f"{NAME}:{server.server_port}")
    assert names[NAME] == []


def test_a_name_that_turns_private_is_refused_and_nobody_is_asked(
    server: HTTPServer, names: dict[str, list[list[str]]]
) -> None:
    names[NAME] = [["127.0.0.1"]]
    with pytest.raises(FetchError, match="not public"):
        asyncio.run(request_once(httpx.URL(f"http://{NAME}:{server.server_port}/"), may_be_private=False))


def test_of_several_addresses_the_first_that_answers_is_taken(
    server: HTTPServer, names: dict[str, list[list[str]]]
) -> None:
    names[NAME] = [["127.0.0.2", "127.0.0.1"]]
    url = httpx.URL(f"http://{NAME}:{server.server_port}/")
    assert asyncio.run(request_once(url, may_be_private=True)).status == 200


def certificate(directory: Path, name: str) -> Path:
    """A certificate for a name, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = directory / f"{name}.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return file


class TestWithTls:
    @pytest.fixture
    def port(self, server: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
        file = certificate(tmp_path, NAME)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        return server.server_port

    def test_the_certificate_is_that_of_the_name_although_an_address_is_asked(
        self, port: int, names: dict[str, list[list[str]]]
    ) -> None:
        names[NAME] = [["127.0.0.1"]]
        response = asyncio.run(request_once(httpx.URL(f"https://{NAME}:{port}/"), may_be_private=True))
        assert response.status == 200

    def test_the_certificate_of_another_name_is_refused(
        self, port: int, names: dict[str, list[list[str]]]
    ) -> None:
        names["other.example"] = [["127.0.0.1"]]
        with pytest.raises(FetchError, match=r"(?i)certificate"):
            asyncio.run(request_once(httpx.URL(f"https://other.example:{port}/"), may_be_private=True))
