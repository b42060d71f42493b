"""A link that records: what a client and its agent say is written as `coupler record` would write it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable

from coupler.client.errors import AgentError
from coupler.client.link import LastWords, Link
from coupler.redaction.sources import Secret
from coupler.wire.tap import Feed, FileError, open_file
from coupler.wire.transport import TappedTransport, Transport


def recorded(
    link: Link,
    path: str | os.PathLike[str],
    *,
    label: str = "",
    mask: bool = True,
    secrets: Iterable[Secret] = (),
) -> RecordingLink:
    """The same link, recorded to a new file; if there is such a file, a number is added to the name.

    Secrets of this process's environment are masked, and `secrets` besides: those that only the agent gets.
    """
    return RecordingLink(link, path, label=label, mask=mask, secrets=secrets)


class RecordingLink:
    """Does what the link does that it is made of, and notes all that passes."""

    def __init__(
        self,
        link: Link,
        path: str | os.PathLike[str],
        *,
        label: str = "",
        mask: bool = True,
        secrets: Iterable[Secret] = (),
    ) -> None:
        self.path = os.path.abspath(path)
        """The file; once the link is open, the one that is really written."""
        self._link = link
        self._header = {
            "label": label,
            "mask": mask,
            "secrets": [[secret.name, secret.value] for secret in secrets],
        }
        self._feed = Feed()
        self._began = 0.0
        self._is_over = False

    def open(self) -> Transport:
        try:
            file, self.path = open_file(self.path)
        except FileError as error:
            raise AgentError("spawn", f"the recording cannot be begun: {error}") from None
        self._began = time.monotonic()
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            transport = self._link.open()
            self._feed.start(file, json.dumps({**self._header, "started": started}).encode())
        finally:
            os.close(file)
        return TappedTransport(transport, self)

    async def wait(self) -> None:
        await self._link.wait()

    async def close(self, grace: float = 5.0) -> None:
        """End the agent, and wait for the file, but not for long."""
        try:
            await self._link.close(grace)
        finally:
            if not self._is_over:
                self._is_over = True
                words = self._link.last_words()
                self._note(b"e", words.stderr.encode(errors="replace"))
                self._note(b"E")
                await asyncio.to_thread(self._feed.finish, self._now(), words.exit_code)

    def last_words(self) -> LastWords:
        return self._link.last_words()

    def sent(self, data: bytes) -> None:
        self._note(b"c", data)

    def received(self, data: bytes) -> None:
        self._note(b"a", data)

    def output_ended(self) -> None:
        self._note(b"C")

    def input_ended(self) -> None:
        self._note(b"A")

    def _note(self, kind: bytes, data: bytes = b"") -> None:
        self._feed.note(self._now(), kind, data)

    def _now(self) -> float:
        return time.monotonic() - self._began
