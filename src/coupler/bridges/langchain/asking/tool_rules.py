"""What the author of an agent wants to be asked about: rules by patterns of tool names or by kinds.

    {"delete_*": "deny", "kind:execute": "ask", "write_file": Rule("ask", decisions=("approve", "edit"))}

The first pattern that fits a tool counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias, cast

from coupler.bridges.langchain.asking.permission import DECISIONS, EFFECTS, USUAL, DecisionName, Effect
from coupler.bridges.langchain.tool_calls.kinds import KINDS
from coupler.bridges.langchain.tool_calls.overrides import checked_kind
from coupler.schema.v1 import ToolKind

KIND = "kind:"
"""How a pattern begins that means all tools of a kind."""


class Rule:
    """What holds for the tools of a pattern: allow, ask or deny, and what may be decided when asked."""

    def __init__(
        self,
        effect: Effect,
        *,
        kind: ToolKind | None = None,
        decisions: Iterable[DecisionName] = USUAL,
        message: str | None = None,
    ) -> None:
        """`kind` is what these tools are, `message` is shown with the question."""
        self.effect = cast(Effect, _one_of(effect, EFFECTS, "effect"))
        self.kind = None if kind is None else checked_kind(kind, "kind")
        self.decisions = _decisions(decisions)
        self.message = message

    def __repr__(self) -> str:
        return f"Rule({self.effect!r})"


RuleLike: TypeAlias = Effect | Rule | Mapping[str, Any]


class Found(NamedTuple):
    """The rule for a tool, and the pattern that it was found by."""

    pattern: str
    rule: Rule


class ToolRules:
    """Rules in the order in which they were written."""

    def __init__(self, rules: Mapping[str, RuleLike], where: str) -> None:
        if not isinstance(rules, Mapping):
            raise TypeError(
                f"{where} takes a mapping from patterns of tool names to rules, not {rules!r:.100}"
            )
        self._rules = {
            _pattern(pattern, where): _rule(rule, pattern, where) for pattern, rule in rules.items()
        }

    def of(self, name: str, kind: str) -> Found | None:
        """The rule for a tool of this name and kind."""
        for pattern, rule in self._rules.items():
            if fits(pattern, name, kind):
                return Found(pattern, rule)
        return None

    @property
    def kinds(self) -> dict[str, ToolKind]:
        """What the rules say the tools are, by pattern."""
        return {
            pattern: rule.kind
            for pattern, rule in self._rules.items()
            if rule.kind is not None and not pattern.startswith(KIND)
        }


def fits(pattern: str, name: str, kind: str) -> bool:
    """Whether a pattern means a tool of this name and kind."""
    if pattern.startswith(KIND):
        return pattern.removeprefix(KIND) == kind
    return fnmatchcase(name, pattern)


def _pattern(pattern: object, where: str) -> str:
    """The pattern, if it can mean something."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise TypeError(
            f"{where}: a pattern is the name of a tool, with `*` for any letters, not {pattern!r:.100}"
        )
    if pattern.startswith(KIND):
        checked_kind(pattern.removeprefix(KIND), where)
    elif ":" in pattern:
        kinds = ", ".join(f"{KIND}{kind}" for kind in KINDS)
        raise ValueError(f"{where}: {pattern!r:.100} means no tool: write its name, or one of {kinds}")
    return pattern


def checked_pattern(pattern: object, where: str) -> str:
    """The same for lists of patterns."""
    return _pattern(pattern, where)


def _rule(rule: object, pattern: str, where: str) -> Rule:
    what = f"{where}: the rule for {pattern!r:.100}"
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return Rule(cast(Effect, _one_of(rule, EFFECTS, what)))
    if not isinstance(rule, Mapping):
        raise TypeError(f"{what} is allow, ask, deny or made with acp.Rule(…), not {rule!r:.100}")
    known = ("effect", "kind", "decisions", "message")
    for key in rule:
        _one_of(key, known, f"{what} has a key that")
    if "effect" not in rule:
        raise ValueError(f"{what} has no `effect`: write allow, ask or deny")
    return Rule(**rule)


def _decisions(decisions: Iterable[str]) -> tuple[DecisionName, ...]:
    if isinstance(decisions, str):
        decisions = (decisions,)
    chosen = tuple(cast(DecisionName, _one_of(each, DECISIONS, "a decision")) for each in decisions)
    if not chosen:
        raise ValueError(f"`decisions` is empty: name some of {', '.join(DECISIONS)}, or deny the tool")
    return chosen


def _one_of(word: object, words: tuple[str, ...], what: str) -> str:
    if word in words:
        return str(word)
    nearest = difflib.get_close_matches(str(word), words, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it is one of {', '.join(words)}"
    raise ValueError(f"{what} is not {word!r:.100}: {hint}")
