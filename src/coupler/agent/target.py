"""A target in words, such as `app.py:agent` or `package.module:Agent`, and the object it means."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from coupler.agent.adoption import is_adoptable
from coupler.agent.agent import Agent, is_turn_function
from coupler.agent.blueprint import WHAT_CAN_BE_SERVED, Blueprint, Servable
from coupler.agent.serve_options import ServeOptions


class TargetError(Exception):
    """The target names nothing that can be served."""


class Served(NamedTuple):
    """What a module asked to serve while it was imported."""

    target: Any
    factory: Any
    options: ServeOptions


_captured: list[list[Served]] = []
_being_loaded: list[str] = []


def capture(served: Served) -> bool:
    """Called by `serve()`: true if a target is being imported, which then is what its module serves.

    So a script that ends with `serve(agent)` works the same under `python` and under `coupler serve`.
    """
    if not _captured:
        return False
    _captured[-1].append(served)
    return True


def load(words: str, options: ServeOptions) -> Blueprint:
    """Import the target and look at it. Whatever its code raises is raised."""
    if words in _being_loaded:
        raise TargetError(f"{words} serves itself: give serve() the agent, not the name of its own file")
    _being_loaded.append(words)
    try:
        return _load(words, options)
    finally:
        _being_loaded.pop()


def _load(words: str, options: ServeOptions) -> Blueprint:
    place, attribute = split(words)
    with _capturing() as captured:
        module = _import_file(os.path.abspath(place)) if is_file(place) else _import_module(place)
    if captured and not attribute:
        # What the command line says wins over what the script says.
        served = captured[-1]
        return blueprint_of(served._replace(options=options.over(served.options)))
    value = _attribute(module, attribute, words) if attribute else _only_candidate(module, words)
    return blueprint_of(Served(value, None, options))


def blueprint_of(served: Served) -> Blueprint:
    """The blueprint of an object that is served, or of a factory."""
    if served.factory is not None:
        return Blueprint.of_factory(served.factory, served.options)
    if isinstance(served.target, str):
        return load(served.target, served.options)
    if isinstance(served.target, Servable) and not isinstance(served.target, type | Agent):
        return served.target.blueprint(served.options)
    return Blueprint.of(served.target, served.options)


def split(words: str) -> tuple[str, str]:
    """File or module, and attribute; the colon of a Windows drive separates nothing."""
    place, colon, attribute = words.rpartition(":")
    if not colon or not attribute.replace(".", "_").isidentifier():
        return words, ""
    return place, attribute


def is_file(place: str) -> bool:
    """Whether the words before the colon name a file rather than a module."""
    return place.endswith(".py") or os.sep in place


@contextmanager
def _capturing() -> Iterator[list[Served]]:
    _captured.append([])
    try:
        yield _captured[-1]
    finally:
        _captured.pop()


def _import_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise TargetError(f"there is no file {path}")
    # A file may be called like a module that is in use: that one must not change under its users.
    stem = os.path.splitext(os.path.basename(path))[0]
    name = f"{stem}_agent" if stem in sys.modules else stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    # As `python file.py` does, so that the file can import what lies beside it.
    sys.path.insert(0, os.path.dirname(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return importlib.import_module(name)


def _attribute(module: ModuleType, attribute: str, words: str) -> Any:
    value: Any = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise TargetError(f"{words}: there is no {attribute!r}; {_offer(module)}") from None
    return value


def _only_candidate(module: ModuleType, words: str) -> Any:
    if hasattr(module, "agent"):
        return module.agent
    candidates = [value for _, value in _candidates(module)]
    # Beside an agent, functions that take a turn are parts of it.
    agents = [value for value in candidates if not inspect.isfunction(value)]
    if len(agents or candidates) == 1:
        return (agents or candidates)[0]
    raise TargetError(f"{words}: say which one to serve, as {words}:NAME; {_offer(module)}")


def _candidates(module: ModuleType) -> list[tuple[str, Any]]:
    """Turn functions and agents that the module itself defines."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Agent)
            or (_is_servable(value) and value.__module__ == module.__name__)
            or is_adoptable(value)
        )
    ]


def _is_servable(value: object) -> bool:
    return is_turn_function(value) or (inspect.isclass(value) and issubclass(value, Agent))


def _offer(module: ModuleType) -> str:
    names = [name for name, _ in _candidates(module)]
    if not names:
        return f"the file has nothing to serve: {WHAT_CAN_BE_SERVED}"
    return f"it could be one of {', '.join(names)}"
