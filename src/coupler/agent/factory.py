"""Loads the target that is served, and makes an agent of it for each session.

A target is a function, an agent, an object of another framework, or words such as `app.py:agent` or
`package.module:Agent`. Adapters for other frameworks stand above this layer, so they are named here and
imported when such an object is met.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from coupler.agent.agent import Agent, FrameworkAgent, FunctionAgent, is_turn_function
from coupler.agent.auth import Login, Logins, own_command
from coupler.agent.capabilities import distribution_version, identity, identity_of, initialize_response
from coupler.agent.startup.serve_options import GRAPH_OPTIONS, NO_OPTIONS, OptionError, ServeOptions
from coupler.events.records import RecordedEvent, UserMessage
from coupler.runtime.exceptions import exception_text
from coupler.runtime.extras import MissingExtraError
from coupler.schema.v1 import InitializeResponse

if TYPE_CHECKING:
    import ast

    from coupler.agent.editor import Editor
    from coupler.agent.session import Session

log = logging.getLogger("coupler.agent")

WHAT_CAN_BE_SERVED = (
    "serve takes a function with one parameter named `turn`, an Agent subclass or instance, "
    "a graph of LangGraph, or a string such as 'app.py:agent'"
)

_LANGCHAIN = "coupler.langchain.adapters"
_ADAPTERS = {"langgraph": _LANGCHAIN, "langchain": _LANGCHAIN, "langchain_core": _LANGCHAIN}
"""Adapters, by the package that the types of their objects come from."""

_GRAPHS = frozenset({"langgraph"})
"""Packages whose objects can be served without a wrapper."""

_STANDARD_LIBRARY = str(import_module("os").__file__).removesuffix("os.py")

_SERVING = ("serve", "serve_async")
"""Functions of Coupler that serve an agent."""

_captured: list[list[ServeCall]] = []
_being_loaded: list[str] = []


class TargetError(Exception):
    """The target does not exist, or is nothing that can be served."""


class ServeCall(NamedTuple):
    """The arguments of a call of `serve()`, or of `coupler serve`."""

    target: Any
    factory: Any
    options: ServeOptions


class ExternalSession(NamedTuple):
    """A session that a framework kept by itself, in the form in which it is stored and goes on here."""

    id: str
    cwd: str
    title: str | None
    updated_at: int
    """Milliseconds since 1970."""
    state: Any
    """The state that the agent resumes from."""
    turns: tuple[tuple[UserMessage | RecordedEvent, ...], ...]
    """The events of each turn; the first is the user's message."""


class Backend(Protocol):
    """Another agent that this one passes everything on to; it is started when the client is known."""

    async def initialize(self, editor: Editor) -> InitializeResponse:
        """Start it, and return the result of `initialize`; raises the error to answer with if it fails."""

    async def forget(self, session_id: str, state: Any) -> None:
        """Delete what the backend keeps of a deleted session; `state` is the state that it had."""

    async def close(self) -> None:
        """Stop the backend, because the client has left."""


@runtime_checkable
class Servable(Protocol):
    """An object that makes its own `AgentFactory`."""

    def make_factory(self, options: ServeOptions) -> AgentFactory:
        """Make the factory of the object's agents."""


class FrameworkAdapter(Protocol):
    """The module that makes agents of a framework's objects."""

    def adapt(self, target: Any, options: ServeOptions) -> FrameworkAgent | None:
        """Adapt the object to an agent; None if it cannot be served."""

    def is_adaptable(self, value: Any) -> bool:
        """Return whether the object could be served, without checking it in detail."""


class AgentFactory:
    """Makes the agent of each session of a target, and says what `initialize` is answered with."""

    def __init__(
        self,
        introduction: InitializeResponse,
        agent_for: Callable[[Session], Awaitable[Agent]],
        *,
        identity: str,
        store: str | None,
        logins: Sequence[Login] | Logins = (),
        backend: Backend | None = None,
        forget: Callable[[str, Any], Awaitable[None]] | None = None,
        external_sessions: Callable[[set[str]], Awaitable[list[ExternalSession]]] | None = None,
    ) -> None:
        self.introduction = introduction
        self.agent_for = agent_for
        self.identity = identity
        """The key that the agent's sessions are stored under; it is independent of the name shown."""
        self.store = store
        """The file that keeps the sessions: None for the user's, NO_STORE for none."""
        self.logins = logins if isinstance(logins, Logins) else Logins(logins, program=own_command())
        self.backend = backend
        """The agent that this one passes everything on to, if it does."""
        self.forget = forget or (backend.forget if backend is not None else None)
        """Called with the id and state of a deleted session, if a framework or backend keeps data of it."""
        self.external_sessions = external_sessions
        """Returns the sessions that a framework keeps by itself, except those that are stored already."""

    @classmethod
    def of(cls, target: Any, options: ServeOptions = NO_OPTIONS) -> AgentFactory:
        """The factory of a turn function, an `Agent` subclass or an `Agent` instance."""
        is_class = isinstance(target, type) and issubclass(target, Agent)
        described: Agent | type[Agent] = target if is_class else as_agent(target, options)
        if is_class:
            refuse_graph_options(options)

        async def agent_for(session: Session) -> Agent:
            return described() if isinstance(described, type) else described

        return cls(
            initialize_response(described, options),
            agent_for,
            identity=identity_of(described),
            store=options.store,
            logins=described.logins,
            forget=described.forget if isinstance(described, FrameworkAgent) else None,
            external_sessions=described.external_sessions if isinstance(described, FrameworkAgent) else None,
        )

    @classmethod
    def of_factory(
        cls, factory: Callable[[Session], Any], options: ServeOptions = NO_OPTIONS
    ) -> AgentFactory:
        """The factory of a function, plain or async, that gets each session and returns its agent."""
        own_name = getattr(factory, "__name__", type(factory).__name__)
        if own_name == "<lambda>":
            own_name = "agent"
        module = factory.__module__ or ""
        version = options.version or distribution_version(module)
        named = options._replace(name=options.name or own_name, version=version)
        introduction = initialize_response(agent_type_of_factories(), named)

        takes_session = _takes_argument(factory)

        async def agent_for(session: Session) -> Agent:
            made = factory(session) if takes_session else factory()  # type: ignore[call-arg]
            made = await made if inspect.isawaitable(made) else made
            if made is None:
                raise TypeError(
                    f"the factory {own_name} returned None: end it with `return`, and the session's agent; "
                    "a function that answers prompts itself has one parameter named `turn`"
                )
            return as_agent(made, options)

        return cls(introduction, agent_for, identity=identity(module, own_name), store=options.store)


def make_factory(served: ServeCall) -> AgentFactory:
    """Make the factory of an object that is served, or of a function that makes agents."""
    if served.factory is not None:
        return AgentFactory.of_factory(served.factory, served.options)
    if isinstance(served.target, str):
        return load_target(served.target, served.options)
    if _is_factory(served.target):
        return AgentFactory.of_factory(served.target, served.options)
    if isinstance(served.target, Servable) and not isinstance(served.target, type | Agent):
        return served.target.make_factory(served.options)
    return AgentFactory.of(served.target, served.options)


def as_agent(target: Any, options: ServeOptions = NO_OPTIONS) -> Agent:
    """Make an agent of the target; TypeError says what can be served."""
    if (adapted := adapt(target, options)) is not None:
        return adapted
    if isinstance(target, Agent):
        return target
    if isinstance(target, type) and issubclass(target, Agent):
        return target()
    if is_turn_function(target):
        return FunctionAgent(target)
    if inspect.iscoroutine(target):
        name = target.__name__
        target.close()
        raise TypeError(
            f"this is what `{name}(…)` returned, a coroutine that nobody has awaited: "
            f"call serve(factory={name})"
        )
    if inspect.isroutine(target):
        raise TypeError(
            f"{WHAT_CAN_BE_SERVED}; this is the function {target.__name__}. If it makes the agent, let it "
            f"take the session or nothing, and call serve(factory={target.__name__})"
        )
    raise TypeError(f"{WHAT_CAN_BE_SERVED}; this is {target!r}")


def _is_factory(target: object) -> bool:
    """Return whether this is a function that makes agents: it takes the session, or nothing."""
    if not inspect.isfunction(target) or inspect.isgeneratorfunction(target) or is_turn_function(target):
        return False
    needed = [each for each in inspect.signature(target).parameters.values() if each.default is each.empty]
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in needed):
        return False
    return not needed or (len(needed) == 1 and (needed[0].name == "session" or _means_session(needed[0])))


def _means_session(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] == "Session"


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with one argument; a builtin may not say."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def capture_serve_call(served: ServeCall) -> bool:
    """Record a call of `serve()` in a target that is being imported; returns whether one is.

    So a script that ends with `serve(agent)` works the same under `python` and under `coupler serve`.
    """
    if not _captured:
        return False
    _captured[-1].append(served)
    return True


def load_target(words: str, options: ServeOptions) -> AgentFactory:
    """Import a target and make its factory. Whatever its code raises is raised."""
    if words in _being_loaded:
        raise TargetError(f"{words} serves itself: give serve() the agent, not the name of its own file")
    _being_loaded.append(words)
    try:
        return _load(words, options)
    finally:
        _being_loaded.pop()


def _load(words: str, options: ServeOptions) -> AgentFactory:
    place, attribute = split_target(words)
    failure = None
    with _capturing() as captured, _arguments_of(place):
        module = _import_file(os.path.abspath(place)) if is_file_target(place) else _import_module(place)
        if not captured:
            failure = _run_main_block(module)
    served = captured[-1] if captured else None
    if served is None or attribute:
        try:
            value = _attribute(module, attribute, words) if attribute else _only_candidate(module, words)
        except TargetError:
            if failure is not None:
                raise failure from None
            raise
        if served is None or (value is not served.target and value is not served.factory):
            served = ServeCall(value, None, NO_OPTIONS)
    # What the command line says wins over what the script says.
    return make_factory(served._replace(options=options.over(served.options)))


def split_target(words: str) -> tuple[str, str]:
    """Split a target into file or module, and attribute; the colon of a Windows drive separates nothing."""
    place, colon, attribute = words.rpartition(":")
    if not colon or not attribute.replace(".", "_").isidentifier():
        return words, ""
    return place, attribute


def is_file_target(place: str) -> bool:
    """Return whether the words before the colon name a file rather than a module."""
    return place.endswith(".py") or os.sep in place


@contextmanager
def _capturing() -> Iterator[list[ServeCall]]:
    _captured.append([])
    try:
        yield _captured[-1]
    finally:
        _captured.pop()


@contextmanager
def _arguments_of(place: str) -> Iterator[None]:
    """Let a target see the arguments that `python file.py` gives it, in place of ours."""
    own, sys.argv = sys.argv, [place]
    try:
        yield
    finally:
        sys.argv = own


def _import_file(path: str) -> ModuleType:
    if not os.path.exists(path):
        raise TargetError(f"there is no file {path}")
    if not os.path.isfile(path):
        raise TargetError(f"{path} is no file")
    if not os.access(path, os.R_OK):
        raise TargetError(f"{path} cannot be read: permission denied")
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
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # one that the target imports
        raise TargetError(
            f"there is no module {error.name!r}, neither in {directory} nor installed; "
            f"a program, or an agent by its name, is served by: coupler serve -- {name}"
        ) from None


def _run_main_block(module: ModuleType) -> BaseException | None:
    """Run what a script does below `if __name__ == "__main__":` up to its call of `serve`.

    The rest of the block is not for us: a script may try its agent out there. Returns why the call was not
    made, if there is one: something before it failed, or it is somewhere else, as in a function. Then its
    options are unknown, which the log says, but the module may have an agent all the same.
    """
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return None
    if "serve" not in source:
        return None
    import ast

    tree = ast.parse(source)
    names = _names_of_serve(tree)
    for block in (each.body for each in tree.body if isinstance(each, ast.If) and _tests_main(each.test)):
        for at, statement in enumerate(block):
            if isinstance(statement, ast.Expr) and _calls(statement.value, names):
                failure = _run_before_serve(module, block[:at])
                if failure is None:
                    _run_statements(module, [statement])
                return failure
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _calls(each, names)]
    if not calls:
        return None
    call = next((each for each in calls if each.keywords), calls[0])
    not_run = f"{module.__file__}, line {call.lineno}: `coupler serve` does not run this call of serve()"
    if call.keywords:
        log.warning("%s, so its options do not hold; %s", not_run, _WHERE_TO_SERVE)
    return TargetError(f"{not_run}; {_WHERE_TO_SERVE}, or start `python {module.__file__}`")


_WHERE_TO_SERVE = 'call serve() at the top level, or directly below `if __name__ == "__main__":`'


def _run_before_serve(module: ModuleType, statements: list[ast.stmt]) -> BaseException | None:
    """Run statements before a call of `serve`, and return what they raise, which the log tells, too."""
    try:
        _run_statements(module, statements)
    except (Exception, SystemExit) as error:
        from traceback import extract_tb

        frames = extract_tb(error.__traceback__)
        log.warning(
            "%s, line %s: %s, so the options of serve() below it do not hold",
            module.__file__,
            next(frame.lineno for frame in frames if frame.filename == module.__file__),
            exception_text(error),
        )
        return error
    return None


def _run_statements(module: ModuleType, statements: list[ast.stmt]) -> None:
    import ast

    exec(compile(ast.Module(statements, []), str(module.__file__), "exec"), vars(module))


def _tests_main(test: ast.expr) -> bool:
    import ast

    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _names_of_serve(tree: ast.Module) -> set[str]:
    """Return what a module calls `coupler.serve` and `serve_async`: other libraries have a `serve`, too."""
    import ast

    names = {f"coupler.{each}" for each in _SERVING}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [each.asname for each in node.names if each.name == "coupler" and each.asname]
            names |= {f"{module}.{each}" for module in modules for each in _SERVING}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "coupler":
            names |= {each.asname or each.name for each in node.names if each.name in _SERVING}
            names |= {*_SERVING} if any(each.name == "*" for each in node.names) else set()
    return names


def _calls(node: ast.AST, names: set[str]) -> bool:
    """Return whether this is a call of a function that has one of these names."""
    import ast

    return isinstance(node, ast.Call) and ast.unparse(node.func) in names


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
    if not candidates:
        raise TargetError(f"{words}: {_offer(module)}")
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
            or is_adaptable(value)
        )
    ]


def _is_servable(value: object) -> bool:
    return is_turn_function(value) or (inspect.isclass(value) and issubclass(value, Agent))


def _offer(module: ModuleType) -> str:
    names = [name for name, _ in _candidates(module)]
    if not names:
        return (
            f"there is nothing to serve: {WHAT_CAN_BE_SERVED}. A function that makes the agent is served if "
            "it is named, or by serve(factory=…)"
        )
    return f"it could be one of {', '.join(names)}"


def adapt(target: Any, options: ServeOptions = NO_OPTIONS) -> FrameworkAgent | None:
    """Make an agent of a framework's object; None if no framework knows it."""
    with _naming_what_is_missing():
        adapter = _adapter_for(target)
        agent = adapter.adapt(target, options) if adapter is not None else None
    if agent is None:
        refuse_graph_options(options)
    return agent


def is_adaptable(value: Any) -> bool:
    """Return whether an object in a module is something that the module might want to have served."""
    # Modules are full of things of a framework; what is none of its graphs must not load the adapter.
    adapter = _adapter_for(value) if _package_of(value) in _GRAPHS else None
    return adapter is not None and adapter.is_adaptable(value)


def agent_type_of_factories() -> type[Agent]:
    """Guess what agents a factory makes: a module that has loaded a framework makes that one's."""
    return FrameworkAgent if any(package in sys.modules for package in _GRAPHS) else Agent


def refuse_graph_options(options: ServeOptions) -> None:
    """Raise if something was said that only graphs understand."""
    for name in GRAPH_OPTIONS:
        if getattr(options, name) is not None:
            other = "set the attribute `commands` of an Agent" if name == "commands" else "leave it out"
            raise OptionError(f"serve(…, {name}=…) is for graphs of LangGraph: {other}, or serve a graph")


def origin_of(target: object) -> tuple[str, str] | None:
    """Find the user's module that has the object, and its name there."""
    for module_name, module in [*sys.modules.items()]:
        if not _is_users(module_name, module):
            continue
        for name, value in [*vars(module).items()]:
            if value is target and not name.startswith("_"):
                return module_name, name
    return None


@contextmanager
def _naming_what_is_missing() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] in _ADAPTERS:
            extra = 'serving graphs of LangGraph needs more packages: pip install "coupler[langchain]"'
            raise MissingExtraError(extra) from None
        raise


def _package_of(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _adapter_for(target: object) -> FrameworkAdapter | None:
    # Models and tools of other packages are classes of LangChain's at heart.
    packages = (kind.__module__.partition(".")[0] for kind in type(target).__mro__)
    module = next((_ADAPTERS[each] for each in packages if each in _ADAPTERS), None)
    return cast(FrameworkAdapter, import_module(module)) if module is not None else None


def _is_users(name: str, module: ModuleType) -> bool:
    from coupler.agent.startup.early_answer import is_installed

    file = getattr(module, "__dict__", {}).get("__file__")
    is_own = name.partition(".")[0] == "coupler"
    return isinstance(file, str) and not is_own and not is_installed(file) and not _is_standard(file)


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD_LIBRARY)
