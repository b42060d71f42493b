"""What the options about permissions mean: a policy; and which of them an agent cannot be kept to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coupler.client.policy import Decide, Policy

PERMISSIONS = ("allow-reads", "allow-all", "deny-all", "ask")


def policy_of(permissions: str, allow: Sequence[str], deny: Sequence[str], callback: Decide | None) -> Policy:
    """The policy; the callback is who `ask` asks. Raises ValueError for options that do not go together."""
    from coupler.client.policy import Policy

    if not allow and not deny:
        return Policy.named(permissions, callback)
    match permissions:
        case "deny-all":
            raise ValueError(
                "--permissions deny-all denies everything: leave it out to use --allow and --deny"
            )
        case "allow-all" if allow:
            raise ValueError("--permissions allow-all allows everything: leave it out to use --allow")
        case "allow-all":
            return Policy.allow_all(but=deny)
    # Without somebody to ask, what no rule decides is denied, but for reads of the session's files.
    rules = Policy.patterns(allow=allow, deny=deny, callback=callback if permissions == "ask" else None)
    if permissions == "ask" and callback is None and not allow:
        return Policy.deny_all()  # nobody is there to ask, and a rule against something allows nothing
    return rules


def refuse_unhonoured(
    agent: str,
    cwd: str,
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    files: str | None,
    terminals: bool,
) -> None:
    """Raise ValueError for options that an agent could not be kept to, for it asks for nothing."""
    given = {"--allow": allow, "--deny": deny, "--files": files, "--terminals": terminals}
    unhonoured = [name for name, value in given.items() if value]
    if not unhonoured:
        return
    from coupler.client.errors import AgentError
    from coupler.client_api import confinement_of, named

    try:
        meant = named(agent, cwd=cwd)
    except AgentError:
        return  # the start itself will say what is wrong
    confinement = None if meant is None else confinement_of(meant.target)
    if confinement is not None:
        raise ValueError(
            f"{confinement.agent} asks for nothing, and reads, writes and runs commands by itself, so that "
            f"it cannot be kept to {' and '.join(unhonoured)}: use --permissions allow-reads or allow-all, "
            "or --mode, or its ACP form"
        )
