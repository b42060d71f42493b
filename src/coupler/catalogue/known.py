"""The agents that everybody may mean by a name.

Command lines and packages are those of the ACP registry and of each vendor's manual. Packages are named
without a version: what a launcher has fetched before is used again, and nothing here grows old.
"""

from __future__ import annotations

from collections.abc import Iterator

from coupler.catalogue.entry import Entry, Package
from coupler.client.quirks import FailsEmpty

CODER = "coder"
"""Coupler's own coding agent."""


def known() -> Iterator[Entry]:
    """All of them, in the order of lists."""
    yield Entry(
        name=CODER,
        title="Coupler's own coding agent",
        programs=(coder_command(CODER),),
        install="It is a part of Coupler: set its model with `coupler login coder`.",
        login="coupler login coder",
    )
    yield from _with_native_form()
    yield from _with_acp_alone()


def coder_command(profile: str) -> tuple[str, ...]:
    """How the coder is started in one of its profiles."""
    return ("coupler", "serve", "--agent", profile)


def _with_native_form() -> Iterator[Entry]:
    yield Entry(
        name="claude",
        title="Claude Code",
        programs=(("claude-agent-acp",), ("claude-code-acp",)),
        package=_npx("@agentclientprotocol/claude-agent-acp"),
        native="claude",
        install=_npm("@agentclientprotocol/claude-agent-acp"),
        login="claude /login",
        quirks=FailsEmpty(),  # an error of the model's server ends its turn well, and without a word
    )
    yield Entry(
        name="codex",
        title="Codex",
        programs=(("codex-acp",),),
        package=_npx("@agentclientprotocol/codex-acp"),
        native="codex",
        install=_npm("@agentclientprotocol/codex-acp"),
        login="codex login",
    )
    yield Entry(
        name="gemini",
        title="Gemini CLI",
        programs=(("gemini", "--acp"),),
        package=_npx("@google/gemini-cli", "--acp"),
        native="gemini",
        install=_npm("@google/gemini-cli"),
        login="gemini",
        files="none",  # where it reads through us it takes "not found" for a failure, and makes no new files
    )
    yield Entry(
        name="copilot",
        title="GitHub Copilot",
        programs=(("copilot", "--acp"),),
        package=_npx("@github/copilot", "--acp"),
        native="copilot",
        install=_npm("@github/copilot"),
        login="copilot login",
    )
    yield Entry(
        name="opencode",
        title="OpenCode",
        programs=(("opencode", "acp"),),
        package=_npx("opencode-ai", "acp"),
        native="opencode",
        install=_npm("opencode-ai"),
        login="opencode auth login",
        quirks=FailsEmpty(),  # what went wrong is only in its log
    )
    yield Entry(
        name="openai",
        title="OpenAI-compatible server",
        native="openai",
        install="Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.",
    )


def _with_acp_alone() -> Iterator[Entry]:
    yield Entry(
        name="goose",
        title="Goose",
        programs=(("goose", "acp"),),
        install="Install Goose as its manual says, then run `goose configure`.",
        login="goose configure",
    )
    yield Entry(
        name="kimi",
        title="Kimi Code",
        programs=(("kimi", "acp"),),
        package=Package("uvx", ("--from", "kimi-cli", "kimi", "acp")),
        install="Install it with `uv tool install kimi-cli`.",
        login="kimi login",
    )
    yield Entry(
        name="vibe",
        title="Mistral Vibe",
        programs=(("vibe-acp",),),
        package=Package("uvx", ("--from", "mistral-vibe", "vibe-acp")),
        install="Install it with `uv tool install mistral-vibe`.",
        login="vibe --setup",
    )
    yield Entry(
        name="qwen",
        title="Qwen Code",
        programs=(("qwen", "--acp"),),
        package=_npx("@qwen-code/qwen-code", "--acp"),
        install=_npm("@qwen-code/qwen-code"),
        login="qwen",
    )
    yield Entry(
        name="cursor",
        title="Cursor",
        # Its newer name is `agent`, which too many programs could have.
        programs=(("cursor-agent", "acp"),),
        install="Install Cursor's command line as its manual says: the program is called `cursor-agent`.",
        login="cursor-agent login",
    )
    yield Entry(
        name="auggie",
        title="Auggie",
        programs=(("auggie", "--acp"),),
        package=_npx("@augmentcode/auggie", "--acp"),
        install=_npm("@augmentcode/auggie"),
        login="auggie login",
        env={"AUGMENT_DISABLE_AUTO_UPDATE": "1"},
    )
    yield Entry(
        name="amp",
        title="Amp",
        programs=(("amp-acp",),),
        package=_npx("amp-acp"),
        install="Install Amp and its adapter: `npm install -g @sourcegraph/amp amp-acp`.",
        login="amp login",
    )
    yield Entry(
        name="cline",
        title="Cline",
        programs=(("cline", "--acp"),),
        package=_npx("cline", "--acp"),
        install=_npm("cline"),
        login="cline auth",
    )
    yield Entry(
        name="devin",
        title="Devin",
        programs=(("devin", "acp"),),
        install="Install the Devin command line as its manual says.",
        login="devin auth login",
    )
    yield Entry(
        name="droid",
        title="Factory Droid",
        programs=(("droid", "exec", "--output-format", "acp"),),
        package=_npx("@factory/cli", "exec", "--output-format", "acp"),
        install=_npm("@factory/cli"),
        login="droid",
        env={"DROID_DISABLE_AUTO_UPDATE": "true", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"},
    )
    yield Entry(
        name="junie",
        title="Junie",
        programs=(("junie", "--acp=true"),),
        install="Install Junie's command line as its manual says.",
        login="junie",
    )
    yield Entry(
        name="kilo",
        title="Kilo Code",
        programs=(("kilo", "acp"),),
        package=_npx("@kilocode/cli", "acp"),
        install=_npm("@kilocode/cli"),
        login="kilo auth login",
        quirks=FailsEmpty(),
    )
    yield Entry(
        name="kiro",
        title="Kiro",
        programs=(("kiro-cli", "acp"),),
        install="Install the Kiro command line as its manual says: the program is called `kiro-cli`.",
        login="kiro-cli login",
    )
    yield Entry(
        name="pi",
        title="Pi",
        programs=(("pi-acp",),),
        package=_npx("pi-acp"),
        install=_npm("pi-acp"),
        login="pi",
        quirks=FailsEmpty(),
    )
    yield Entry(
        name="qoder",
        title="Qoder",
        programs=(("qodercli", "--acp"),),
        package=_npx("@qoder-ai/qodercli", "--acp"),
        install=_npm("@qoder-ai/qodercli"),
        login="qodercli",
    )


def _npx(package: str, *arguments: str) -> Package:
    return Package("npx", ("-y", package, *arguments))


def _npm(package: str) -> str:
    return f"Install it with `npm install -g {package}`."
