"""Declares authentication methods, and checks whether the user is logged in by one of them.

    Login("key", "API key", "Set EXAMPLE_KEY", check=lambda: "EXAMPLE_KEY" in os.environ)
    Login("browser", "Log in with a browser", check=has_session, login=open_browser, logout=forget)
    Login("terminal", "Log in in a terminal", check=has_session, command=["login"])

A method with a `command` is one that clients run in a terminal: the agent's own command with these
arguments. The user may also run it anywhere else, so a check that failed is made again the next time;
one that passed holds until somebody logs in or out.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import UNSET

from coupler.agent.content import declared_list, declared_or_none, declared_text, plain_text
from coupler.agent.errors import AGENT_FAILED, AuthRequiredError, describe
from coupler.runtime.threads import WorkerLoop
from coupler.schema.v1 import AuthMethod, AuthMethodAgent, AuthMethodTerminal
from coupler.wire.messages import INVALID_PARAMS, RpcError

log = logging.getLogger("coupler.agent")

CHECK_LIMIT = 10.0
"""Seconds that a check of a login may take."""

LoginCheck: TypeAlias = Callable[[], bool | Awaitable[bool]]
LoginAction: TypeAlias = Callable[[], object]
"""Logs in or out; a coroutine function is awaited, a plain one runs in a thread of its own."""


class Login:
    """An authentication method. `check` says if the user is logged in, `login` and `logout` change it."""

    def __init__(
        self,
        id: str,
        name: str,
        description: str | None = None,
        *,
        check: LoginCheck,
        login: LoginAction | None = None,
        logout: LoginAction | None = None,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.id: Final = declared_text(id, "the id of a login")
        what = f"the login {self.id!r}"
        self.name: Final = declared_text(name, f"the name of {what}")
        self.description: Final = declared_or_none(description, f"the description of {what}")
        self.check: Final = _callable(check, f"the check of {what}")
        self.login: Final = None if login is None else _callable(login, f"the `login` of {what}")
        self.logout: Final = None if logout is None else _callable(logout, f"the `logout` of {what}")
        self.command: Final = None if command is None else _words(command, what)
        self.env: Final = _variables(env or {}, what)
        self._refuse_mixtures(what)

    def __repr__(self) -> str:
        return f"Login({self.id!r})"

    @property
    def is_for_terminals(self) -> bool:
        """True if clients run it in a terminal instead of sending `authenticate`."""
        return self.command is not None

    def as_method(self) -> AuthMethod:
        """The login as clients are told of it."""
        description = self.description or UNSET
        if self.command is None:
            return AuthMethodAgent(self.id, self.name, description)
        return AuthMethodTerminal(self.id, self.name, description, self.command, self.env or UNSET)

    def _refuse_mixtures(self, what: str) -> None:
        if self.command is None and self.env:
            raise ValueError(f"{what} has variables but no command that would get them: give it a `command`")
        if self.command is not None and self.login is not None:
            raise ValueError(f"{what} has a `command` and a `login`: make two of it")
        if self.command == () and not self.env:
            raise ValueError(f"{what} would run the agent itself: give its `command` arguments that log in")


class _RunningCheck(NamedTuple):
    """A check that runs, and the time at which it is given up."""

    check: asyncio.Future[Any]
    deadline: float


class Logins:
    """The authentication methods of one agent. Without any there is nothing to satisfy.

    `program` is the agent's own command, as a user would write it, for sentences that say what to run.
    """

    def __init__(
        self, logins: Iterable[Login] = (), *, program: Sequence[str] = (), limit: float = CHECK_LIMIT
    ) -> None:
        self._logins = declared_list(logins, (Login,), lambda login: login.id, "logins")
        self._program = tuple(program)
        self._limit = limit
        self._is_satisfied = False
        # Counts logins and logouts: a check that began before one of them says nothing about now.
        self._changes = 0
        self._running: dict[str, _RunningCheck] = {}
        self._login: asyncio.Task[Exception | None] | None = None
        # Still passing after a logout that was to end them all; they count again after `authenticate`.
        self._disregarded: set[str] = set()

    @property
    def is_known_satisfied(self) -> bool:
        """True if a check has passed and no login or logout came after it, or if there are no logins."""
        return self._is_satisfied or not self._logins

    async def is_satisfied(self) -> bool:
        """Return whether one of the checks passes, or there are no logins."""
        if not self._logins:
            return True
        while not self._is_satisfied:
            changes = self._changes
            passes = await self._any_passes()
            if changes == self._changes:
                self._is_satisfied = passes
                return passes
        return True

    async def require(self) -> None:
        """Raise unless the user is logged in, and name the ways to do it."""
        if not await self.is_satisfied():
            raise AuthRequiredError(f"log in first: {self._ways()}")

    async def authenticate(
        self, method_id: str, meta: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Log in, unless the user is; the answer to `authenticate`. Returns the `_meta` of the answer.

        A login that still runs is given up: its user has closed the page, or wants another way.
        """
        login = self._method(method_id)
        self._disregarded.clear()
        if await self.is_satisfied():
            return None
        if login.login is not None:
            await self._run_login(login, login.login)
        if not await self.is_satisfied():
            raise AuthRequiredError(f"{login.name} did not log the user in; log in first: {self._ways()}")
        return None

    async def log_out(self, meta: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """Log out of everything; the answer to `logout`. Errors are raised after all logouts were tried.

        Returns the `_meta` of the answer.
        """
        self._give_up_login()
        failures = []
        for login in self._logins:
            if login.logout is not None and (error := await _attempt(login.logout)) is not None:
                log.warning("logging out of %s failed: %s", login.id, describe(error))
                failures.append(f"{login.name}: {describe(error)}")
        self.forget()
        still = await asyncio.gather(*(self._passes(login) for login in self._logins))
        self._disregarded = {login.id for login, passes in zip(self._logins, still, strict=True) if passes}
        self.forget()
        if failures:
            raise RpcError.because(AGENT_FAILED, f"logging out failed: {'; '.join(failures)}")
        return None

    def forget(self) -> None:
        """Drop the result of earlier checks, for example because a server has refused the credentials."""
        self._is_satisfied = False
        self._changes += 1
        self._running.clear()

    def _method(self, method_id: str) -> Login:
        for login in self._logins:
            if login.id == method_id:
                if not login.is_for_terminals:
                    return login
                message = (
                    f"the login {method_id!r} is not for authenticate: {self._way(login)}, then reconnect"
                )
                raise RpcError.because(INVALID_PARAMS, message, path="methodId")
        known = ", ".join(login.id for login in self._logins if not login.is_for_terminals) or "none"
        message = f"there is no login {method_id!r:.100}; those for authenticate: {known}"
        raise RpcError.because(INVALID_PARAMS, message, path="methodId")

    async def _run_login(self, login: Login, action: LoginAction) -> None:
        self._give_up_login()
        attempt = self._login = asyncio.ensure_future(_attempt(action))
        try:
            await asyncio.wait({attempt})
        finally:
            attempt.cancel()
            self.forget()
        if attempt.cancelled():
            raise AuthRequiredError(
                f"logging in with {login.name} was given up for another login or a logout"
            )
        if (error := attempt.result()) is not None:
            log.warning("logging in with %s failed: %s", login.id, describe(error))
            raise AuthRequiredError(f"logging in with {login.name} failed: {describe(error)}")

    def _give_up_login(self) -> None:
        if self._login is not None:
            self._login.cancel()

    async def _any_passes(self) -> bool:
        counted = [login for login in self._logins if login.id not in self._disregarded]
        checks = [asyncio.ensure_future(self._passes(login)) for login in counted]
        try:
            for next_one in asyncio.as_completed(checks):
                if await next_one:
                    return True
            return False
        finally:
            for check in checks:
                check.cancel()

    async def _passes(self, login: Login) -> bool:
        """Return whether the check of a login passes in time.

        One that hangs is not begun a second time: threads cannot be ended, and would become more and more.
        """
        loop = asyncio.get_running_loop()
        running = self._running.get(login.id)
        if running is None or running.check.done():
            running = _RunningCheck(asyncio.ensure_future(_call(login.check)), loop.time() + self._limit)
            running.check.add_done_callback(_look_at_error)
            self._running[login.id] = running
        done, _ = await asyncio.wait({running.check}, timeout=max(running.deadline - loop.time(), 0))
        if not done:
            log.warning("the check of the login %s did not end within %g s", login.id, self._limit)
            return False
        return _verdict(login, running.check)

    def _ways(self) -> str:
        return "; or ".join(self._way(login) for login in self._logins)

    def _way(self, login: Login) -> str:
        if login.command is None:
            return f"{login.name} ({login.description})" if login.description else login.name
        if self._program:
            return f"run `{shlex.join((*self._program, *login.command))}` in a terminal"
        return f"run the agent's command with `{shlex.join(login.command)}` in a terminal"


def own_command() -> tuple[str, ...]:
    """Return the command that this process was started with, as a user would type it."""
    words = sys.orig_argv
    script = sys.argv[0] if sys.argv else ""
    is_command = words[1:2] == [script] and not script.endswith(".py") and os.access(script, os.X_OK)
    # Commands of packages are started with the path of their interpreter, which nobody types.
    return tuple(words[1:] if is_command else words)


def _verdict(login: Login, check: asyncio.Future[Any]) -> bool:
    if check.cancelled():
        log.warning("the check of the login %s was cancelled", login.id)
        return False
    if (error := check.exception()) is not None:
        log.warning("the check of the login %s failed: %s", login.id, describe(error))
        return False
    if not isinstance(result := check.result(), bool):
        log.warning("the check of the login %s returned %s, not a bool", login.id, type(result).__name__)
        return False
    return result


def _look_at_error(check: asyncio.Future[Any]) -> None:
    """Retrieve the check's exception, which Python would report otherwise if nobody waits any more."""
    if not check.cancelled():
        check.exception()


async def _attempt(action: LoginAction) -> Exception | None:
    """Call it, and return the exception that it raised. A cancel of the caller's task passes."""
    try:
        await _call(action)
    except Exception as error:
        return error
    return None


async def _call(function: Callable[[], Any]) -> Any:
    """Call a function of the agent's code so that it neither blocks the loop nor exits the process."""
    try:
        if inspect.iscoroutinefunction(function):
            return await function()
        result = await _call_in_thread(function)
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        raise RuntimeError(describe(error)) from None


async def _call_in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a daemon thread: one that hangs must not keep the process from ending."""
    loop = WorkerLoop(asyncio.get_running_loop())
    finished: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            result, error = function(), None
        except BaseException as raised:
            result, error = None, raised
        loop.call_soon(_settle, finished, result, error)

    threading.Thread(target=run, name="login", daemon=True).start()
    return await finished


def _settle(finished: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if finished.done():
        return
    if error is None:
        finished.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        finished.set_exception(error)
    else:
        # The loop would take these for its own end, and a future refuses a StopIteration.
        finished.set_exception(RuntimeError(describe(error)))


def _callable(value: Any, what: str) -> Any:
    if not callable(value):
        raise ValueError(f"{what} is a function, not {value!r:.100}")
    return value


def _words(command: object, what: str) -> tuple[str, ...]:
    if isinstance(command, str) or not isinstance(command, Sequence):
        raise ValueError(f"the command of {what} is a list of arguments, not {command!r:.100}")
    return tuple(_argument(word, what) for word in command)


def _argument(word: object, what: str) -> str:
    if not isinstance(word, str) or "\0" in word:
        raise ValueError(f"the command of {what} is a list of texts, not of {word!r:.100}")
    return plain_text(word, "an argument")


def _variables(env: object, what: str) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise ValueError(f"the variables of {what} are a mapping of names to values, not {env!r:.100}")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"{what} has a variable that cannot be called {name!r:.100}")
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"the variable {name} of {what} is text")
    return dict(env)
