"""The rules and tools of each mode of the coder, for the session's one permission engine.

A mode never goes beyond what is written: ask and deny rules, what was rejected for good, secrets, places
outside of the session's directories, what cannot be judged and the hard floor hold in all of them. A switch
counts from the next call on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from coupler import acp
from coupler.coder.profiles import (
    ACCEPT_EDITS,
    AGENTIC,
    DEFAULT_PROFILE,
    INTERACTIVE,
    MODES,
    PLANNING,
    READ_ONLY,
    CoderProfile,
    mode_of_profile,
)
from coupler.langchain.permission import KIND_PREFIX
from coupler.permission.rules import NO_MODE, ModeRules

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.langchain.modes import ModesMiddleware

PRESENT_PLAN = "present_plan"

ASKED_FILES = tuple(
    f"{kind}(**/{name})"
    for kind in ("edit", "delete", "move")
    for name in (
        *(".github/**", ".gitlab-ci.yml", ".gitlab/**", ".circleci/**", ".travis.yml", "azure-pipelines.yml"),
        *("Jenkinsfile", ".buildkite/**", ".woodpecker/**", ".woodpecker.yml", ".drone.yml", ".githooks/**"),
        *("lefthook.yml", ".claude/**", ".cursor/**", ".gemini/**", ".codex/**", ".zed/**", ".mcp.json"),
        *(".devcontainer/**", ".envrc", "bitbucket-pipelines.yml"),
    )
)
"""Rules for files that run something elsewhere or later: they are asked about even if edits are accepted."""

INSTRUCTION_FILES = tuple(
    f"{kind}(**/{name})"
    for kind in ("edit", "delete", "move")
    for name in (
        "AGENTS.md",
        "AGENTS.override.md",
        "CLAUDE.md",
        "CLAUDE.local.md",
        "GEMINI.md",
        ".cursorrules",
    )
)
"""Rules for files that later agents obey: who accepts edits has not accepted other instructions."""

CREDENTIALS = tuple(
    f"execute({words} *)"
    for words in (
        *(
            "gh auth token",
            "git credential fill",
            "gcloud auth print-access-token",
            "az account get-access-token",
        ),
        *("gcloud auth print-identity-token", "aws configure get", "aws configure export-credentials"),
        *("aws sts assume-role", "aws sts get-session-token", "aws secretsmanager get-secret-value"),
        *("aws ssm get-parameter", "aws ecr get-login-password", "heroku auth:token", "kubectl config view"),
        *(
            "kubectl get secret",
            "kubectl get secrets",
            "kubectl describe secret",
            "vault read",
            "vault kv get",
        ),
        *("pass show", "gopass show", "op read", "op item get", "bw get", "lpass show", "keyring get"),
        *(
            "secret-tool lookup",
            "security find-generic-password",
            "security find-internet-password",
            "sops -d",
        ),
        *(
            "gh auth status --show-token",
            "sops --decrypt",
            "aws ssm get-parameters",
            "make -p",
            "make --print-data-base",
        ),
        *("gcloud auth application-default print-access-token", "npm run-script env", "yarn run env"),
        *("gpg --export-secret-keys", "gpg --export-secret-subkeys", "npm run env", "docker compose config"),
        *("direnv export", "direnv dump", "mise env", "asdf env"),
    )
)
"""Rules for commands that print keys and passwords, which the model would read."""

IRREVERSIBLE = tuple(
    f"execute({words} *)"
    for words in (
        *("git push --force", "git push -f", "git push --mirror", "git push --delete", "git push --prune"),
        *("npm publish", "npm unpublish", "pnpm publish", "yarn publish", "cargo publish", "cargo yank"),
        *("uv publish", "poetry publish", "twine upload", "gem push", "gh repo delete", "gh release delete"),
        *(
            "terraform destroy",
            "terraform apply",
            "tofu destroy",
            "tofu apply",
            "pulumi destroy",
            "pulumi up",
        ),
        *("kubectl delete", "kubectl drain", "helm uninstall", "helm delete", "aws s3 rm", "aws s3 rb"),
        *(
            "npm pub",
            "pdm publish",
            "hatch publish",
            "docker image push",
            "docker compose push",
            "gh release create",
        ),
        *("redis-cli flushall", "redis-cli flushdb", "dropdb", "docker push", "fly apps destroy"),
    )
)
"""Rules for commands that change something elsewhere and cannot be undone."""

_OWN = tuple(
    f"execute(coupler {name} *)"
    for name in (
        *("trust", "login", "permissions", "init", "editor", "serve", "chat", "exec", "run", "resume"),
        "sessions",
    )
)
"""Rules for Coupler's own commands that extend an agent's permissions, or start other agents."""

_RUNNERS = (
    *(f"execute({name} run *)" for name in ("uv", "poetry", "pdm", "hatch", "pipenv", "rye", "cargo", "go")),
    *("execute(bundle exec *)", "execute(go generate *)"),
)
"""Rules for commands that run the project's own programs, which a rule for all commands does not cover."""

_CHANGES = ("edit", "delete", "move")
_SEARCH = "search"
"""Rule for searches in the session's directories: the coder's tools leave out what it may not read."""

RULES: Mapping[str, ModeRules] = {
    INTERACTIVE: ModeRules.parse("Ask", allow=(_SEARCH,)),
    ACCEPT_EDITS: ModeRules.parse(
        "Accept edits", allow=(_SEARCH, "edit"), ask=(*ASKED_FILES, *INSTRUCTION_FILES)
    ),
    READ_ONLY: ModeRules.parse("Read only", allow=(_SEARCH,), deny=_CHANGES, only_reading=True),
    PLANNING: ModeRules.parse("Plan", allow=(_SEARCH,), deny=_CHANGES, only_reading=True),
    AGENTIC: ModeRules.parse(
        "Auto", allow=("*", *_RUNNERS), ask=(*ASKED_FILES, *CREDENTIALS, *IRREVERSIBLE, *_OWN)
    ),
}
"""Rules of each mode, by its id; what no rule covers is asked."""

_READ_ONLY_TOOLS = (
    *(f"{KIND_PREFIX}{kind}" for kind in ("read", "search", "think")),
    "ask_user",
    # Judged as lines of bash, which is not what runs them there.
    *(("run_command",) if sys.platform != "win32" else ()),
)
_TOOLS = {
    READ_ONLY: _READ_ONLY_TOOLS,
    PLANNING: (*_READ_ONLY_TOOLS, f"{KIND_PREFIX}fetch", "write_todos", PRESENT_PLAN),
}
_PROMPTS = {
    READ_ONLY: "You are in read-only mode: you can read and search, and change nothing. run_command runs "
    "commands that are known to only read, such as git log, git diff, ls and rg. Answer with what you find; "
    "if something has to be changed, say what and how, and leave it to the user.",
    PLANNING: "You are in planning mode: look at whatever you need, and change nothing. run_command runs "
    "commands that are known to only read, such as git log, git diff, ls and rg. Ask the user where the "
    "task leaves something open that matters. When you know how to do it, call present_plan with a plan as a "
    "numbered list, one step a line, that names files and says how the result is checked. If the user "
    "approves it, you can change things, and carry it out at once.",
    AGENTIC: "You are in auto mode: the user wants you to work on your own to the end of the task. Most of "
    "what you do is not asked about. Do not stop to ask what you can find out or decide yourself.",
}

_PLANNING_IN_PROFILE = (
    "You are in planning mode: look at whatever you need, and change nothing. Answer with a plan as a "
    "numbered list, one step a line; the user chooses another mode to have it carried out."
)


class CoderSessionMode(acp.Mode):
    """A mode of the coder; only the planning mode has the tool to present a plan."""

    # Where nothing may change, what a server claims of its tools earns them nothing.
    believes_servers = False

    def offers(self, name: str, kind: str) -> bool:
        """True if the mode has a tool of this name and kind."""
        if name == PRESENT_PLAN and self.id != PLANNING:
            return False
        return super().offers(name, kind)

    @property
    def offers_all(self) -> bool:
        """True if it has all tools: each lacks one that another has."""
        return False


def mode_middleware(
    session: Session,
    profile: CoderProfile = DEFAULT_PROFILE,
    first: str = INTERACTIVE,
    profiles: Iterable[CoderProfile] = (),
) -> ModesMiddleware:
    """The modes of a session, which begins in the `first`, with profiles that are offered as modes.

    From now on the session's permissions follow its mode, and the rules of the profile that is in use.
    """
    offered = [*profiles]
    rules = {mode.id: _rules_of(profile, mode.id) for mode in MODES}
    rules |= {each.name: _rules_of(each, each.mode or INTERACTIVE) for each in offered}
    session.project.permissions().follow(lambda: rules.get(session.mode or first, NO_MODE))
    modes = [
        CoderSessionMode(
            mode.id, mode.description, name=mode.name, prompt=_PROMPTS.get(mode.id), tools=_TOOLS.get(mode.id)
        )
        for mode in MODES
    ]
    return acp.modes(*modes, *map(_mode_of, offered), default=first)


def _mode_of(profile: CoderProfile) -> CoderSessionMode:
    """Make the mode of a profile, with the prompt and tools of the mode that the profile begins in."""
    base = profile.mode or INTERACTIVE
    offered = mode_of_profile(profile)
    return CoderSessionMode(
        offered.id,
        offered.description,
        name=offered.name,
        prompt=_PLANNING_IN_PROFILE if base == PLANNING else _PROMPTS.get(base),
        tools=_TOOLS.get(base),
    )


def _rules_of(profile: CoderProfile, mode: str) -> ModeRules:
    """The rules of a profile, on top of those of a mode."""
    own = ModeRules.parse(profile.name, allow=profile.allow, deny=profile.deny)
    base = RULES.get(mode, NO_MODE)
    return ModeRules((*base.allow, *own.allow), base.ask, (*base.deny, *own.deny), base.only_reading)
