"""A server on loopback for `http` steps, which says what a test tells it to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from raw_client import PATIENCE


class Site:
    """A server that says what its paths say, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}
        self.held = threading.Event()
        """Set when requests for `/slow` may be answered."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                site.asked.append((self.command, self.path, headers, body))
                path = self.path.partition("?")[0]
                if path == "/slow":
                    site.held.wait(PATIENCE)
                answers = site.answers.get(path) or [(404, {}, b'{"message": "no such thing"}')]
                status, more, content = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                fields = {"Content-Type": "application/json", "Content-Length": str(len(content)), **more}
                for name, value in fields.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_HEAD = answer  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, path: str, body: object = None, status: int = 200, **headers: str) -> None:
        """Add an answer; the last one of a path is given again."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(path, []).append((status, fields, content))

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]

    def close(self) -> None:
        self.held.set()
        self.server.shutdown()
        self.server.server_close()
