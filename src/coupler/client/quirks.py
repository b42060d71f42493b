"""Knows what is particular about agents, by the name that each gives itself in `initialize`.

`Quirks` are the deviations of one agent; no other code names an agent. `KNOWN_AGENTS` is the table. A row
holds for all versions, or for some if they are known to differ; what is in it was seen in the versions that
`docs/interop.md` names. What has to be known before `initialize`, the files that are offered and the
environment, goes by the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from coupler.client.reply import Reply
    from coupler.schema.v1 import Implementation

LAUNCHERS = frozenset({"npx", "bunx", "pnpx", "uvx", "node", "bun", "deno", "python", "python3"})
"""Programs whose first argument that is no option names what they run."""


TOOLS_WAIT = 1.0
"""Seconds that the first prompt waits for an agent to ask for our tools, if nothing is known of it."""

SLOW_TOOLS_WAIT = 10.0
"""Seconds for an agent that is known to ask for them after it has answered `session/new`."""

LONGEST_VERSION = 100
"""Characters of an agent's version that are read."""


class Quirks(Protocol):
    """Deviations of one agent from the protocol. Derive from `Usual` and override what differs."""

    linger: float
    """Seconds of silence to wait for after a turn's answer, for agents that send content late; mostly 0."""

    sums_tokens: bool | None
    """True if the tokens of an answer count from the session's beginning, False if they are the turn's.

    None if nobody knows: numbers that only grow, and contain those of the turn before, are taken for a sum.
    """

    tools_wait: float
    """Seconds that a session's first prompt waits, at most, until the agent was told our tools.

    0 for an agent that lists them when it needs them. One that has not asked in time is not waited for again.
    """

    is_ordered: bool
    """True if it sends everything of a turn before its answer; others are given a moment to be late."""

    def model_for(self, wanted: str, offered: Sequence[str]) -> str | None:
        """Return the offered model that a name means; None if there is none."""

    def may_refuse_mode(self, mode: str) -> bool:
        """Return whether a refused mode is only logged as a warning."""

    def is_failure(self, reply: Reply) -> bool:
        """Return whether a turn that ended well counts as failed, such as one with an empty answer."""


class Usual:
    """An agent that follows the protocol."""

    linger: float = 0.0
    sums_tokens: bool | None = None
    tools_wait: float = TOOLS_WAIT
    is_ordered: bool = False

    def model_for(self, wanted: str, offered: Sequence[str]) -> str | None:
        return wanted if wanted in offered else None

    def may_refuse_mode(self, mode: str) -> bool:
        return False

    def is_failure(self, reply: Reply) -> bool:
        return False


class FailsEmpty(Usual):
    """An agent whose empty answer counts as a failure, as with many that did not reach their model."""

    def is_failure(self, reply: Reply) -> bool:
        return reply.is_complete and reply.is_empty


class CountsTurns(Usual):
    """An agent that reports the tokens of each turn."""

    sums_tokens: bool | None = False


class CountsSessions(Usual):
    """An agent that reports the sum of all tokens since the session's beginning."""

    sums_tokens: bool | None = True


class ServedByCoupler(CountsTurns):
    """An agent of Coupler's own side: it asks for tools in the turn that uses them, and keeps the order."""

    tools_wait: float = 0.0
    is_ordered: bool = True


class AsksLateForTools(CountsTurns):
    """An agent that answers `session/new` and connects to MCP servers after it."""

    tools_wait: float = SLOW_TOOLS_WAIT


class KeepsTools(CountsSessions):
    """An agent that keeps the tools of a server on the disk, and need not ask for them."""

    tools_wait: float = 0.0


class CountsTurnsAndFailsEmpty(FailsEmpty):
    """An agent that reports the tokens of each turn, and whose empty answer counts as a failure."""

    sums_tokens: bool | None = False


class KnownAgent(NamedTuple):
    """A row of the table."""

    names: tuple[str, ...]
    """The names in `agentInfo` and those of its programs and packages, in lower case and without a scope."""
    quirks: Quirks
    files: Literal["none"] | None = None
    """The default of `files=`; None for that of every agent."""
    env: Mapping[str, str] = {}
    """Variables that its environment needs besides ours."""
    since: tuple[int, ...] = ()
    """The first version that the row holds for."""
    before: tuple[int, ...] = ()
    """The first version after it that the row does not hold for; empty if there is none."""

    def holds_for(self, version: tuple[int, ...]) -> bool:
        """Return whether the row holds for a version; one that is not known counts as the newest."""
        if not version:
            return not self.before
        return self.since <= version and (not self.before or version < self.before)


KNOWN_AGENTS = (
    KnownAgent(("coupler",), ServedByCoupler()),
    # An error of the model's server ends its turn well, and without a word.
    KnownAgent(("claude-agent-acp", "claude-code-acp"), CountsTurnsAndFailsEmpty()),
    KnownAgent(("codex-acp",), CountsTurns()),
    # Where it reads through us it takes "not found" for a failure, and makes no new files.
    KnownAgent(("gemini-cli", "gemini"), CountsTurns(), files="none"),
    # What went wrong is only in its log.
    KnownAgent(("opencode", "opencode-ai"), CountsTurnsAndFailsEmpty()),
    KnownAgent(("kilo", "@kilocode/cli"), FailsEmpty()),
    KnownAgent(("pi-acp",), FailsEmpty()),
    # The variable makes it ask all MCP servers, also the user's, before it answers `session/new`.
    KnownAgent(
        ("qwen-code", "qwen"), AsksLateForTools(), env={"QWEN_CODE_LEGACY_MCP_BLOCKING": "1"}, since=(0, 24)
    ),
    KnownAgent(("qwen-code", "qwen"), CountsTurns(), before=(0, 24)),
    KnownAgent(("mistral-vibe", "vibe-acp"), KeepsTools()),
    KnownAgent(("hermes-agent", "hermes", "hermes-acp"), CountsSessions()),
    KnownAgent(("auggie",), Usual(), env={"AUGMENT_DISABLE_AUTO_UPDATE": "1"}),
    KnownAgent(
        ("droid", "@factory/cli"),
        Usual(),
        env={"DROID_DISABLE_AUTO_UPDATE": "true", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"},
    ),
)
"""All rows. Those of one agent have ranges of versions that do not overlap."""

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)")


def known_by_info(info: Implementation | None) -> KnownAgent | None:
    """Return what is known of an agent by what it said of itself in `initialize`."""
    return None if info is None else _known(info.name, version_numbers(info.version))


def known_by_command(words: Sequence[str]) -> KnownAgent | None:
    """Return what is known of an agent by its command line, before it has said anything."""
    program, *rest = words
    name = PurePath(program).stem
    if "--" in rest and "coupler" in {PurePath(word).name for word in words[: words.index("--")]}:
        return None  # `coupler serve -- agent` is as that agent, and says its name
    if name in LAUNCHERS:
        name = next((word for word in rest if not word.startswith("-")), "")
        if not name.startswith("@"):
            name = PurePath(name).name  # a script, in some directory
        name = name.rpartition("@")[0] or name  # a version may stand behind a package
        name = name if name.startswith("@") else PurePath(name).stem
    return _known(name)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, such as (0, 24, 4); empty if it begins with none."""
    found = _NUMBERS.match(version[:LONGEST_VERSION])
    return () if found is None else tuple(map(int, found[1].split(".")))


def _known(name: str, version: tuple[int, ...] = ()) -> KnownAgent | None:
    whole = name.casefold()
    for each in (whole, whole.rpartition("/")[2]):
        for known in KNOWN_AGENTS:
            if each in known.names and known.holds_for(version):
                return known
    return None
