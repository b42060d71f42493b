"""The locks and their hashes, and upper bounds of packages whose private names are used."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "coupler"
LOCKS = [*ROOT.glob("requirements*.txt"), *ROOT.glob("interop/locks/*/requirements.txt")]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def entries(lock: Path) -> list[str]:
    """Return the requirements of a lock, each with all its lines."""
    text = re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    return [part for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if part.strip()]


def pinned(lock: Path) -> dict[str, Requirement]:
    found = [Requirement(entry.splitlines()[0].removesuffix("\\")) for entry in entries(lock)]
    return {canonicalize_name(each.name): each for each in found}


def group(name: str) -> list[Requirement]:
    """Return the requirements of a dependency group, with those of the groups that it includes."""
    found = []
    for each in PROJECT["dependency-groups"][name]:
        found += group(each["include-group"]) if isinstance(each, dict) else [Requirement(each)]
    return found


def extra(name: str) -> list[Requirement]:
    """Return the requirements of an extra, with those of the extras that it includes."""
    found = []
    for each in map(Requirement, PROJECT["project"]["optional-dependencies"][name]):
        if each.name == PROJECT["project"]["name"]:
            found += [inner for other in each.extras for inner in extra(other)]
        else:
            found.append(each)
    return found


def test_every_requirement_of_every_lock_is_one_version_with_hashes() -> None:
    assert {lock.name for lock in LOCKS} >= {"requirements-dev.txt", "requirements-lock.txt"}
    loose = [
        f"{lock.relative_to(ROOT)}: {entry.splitlines()[0]}"
        for lock in LOCKS
        for entry in entries(lock)
        if not re.fullmatch(r"[\w.-]+==\S+(?: ; [^\n]+?)?(?: \\\n +--hash=sha256:[0-9a-f]{64})+\n", entry)
    ]
    assert loose == []


def test_every_package_from_npm_has_its_integrity() -> None:
    places = [
        *ROOT.glob("interop/locks/*/package-lock.json"),
        *ROOT.glob("tests/interop/*/package-lock.json"),
    ]
    locks = [json.loads(place.read_text()) for place in places]
    loose = [
        f"{lock['name']}: {place}"
        for lock in locks
        for place, package in lock["packages"].items()
        if place and not package.get("integrity", "").startswith("sha512-")
    ]
    assert len(locks) == 8
    assert loose == []


def test_the_locks_cover_what_the_project_asks_for() -> None:
    core = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    backend = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
    wanted = {
        "requirements-dev.txt": [*core, *backend, *group("dev")],
        "requirements-demo.txt": [*core, *backend, *group("demo"), *extra("chat"), *extra("coder")],
        "requirements.txt": core
        + [each for name in PROJECT["project"]["optional-dependencies"] for each in extra(name)],
        "requirements-lock.txt": group("lock"),
    }
    missing = []
    for name, requirements in wanted.items():
        have = pinned(ROOT / name)
        for each in requirements:
            exact = have.get(canonicalize_name(each.name))
            version = str(exact.specifier).removeprefix("==") if exact else None
            if version is None or not each.specifier.contains(version, prereleases=True):
                missing.append(f"{name}: {each}, has {version}")
    assert missing == [], "run `make lock UPGRADE=`"


def test_the_demo_and_the_extras_are_pinned_to_what_is_tested() -> None:
    tested = pinned(ROOT / "requirements-dev.txt")
    others = {
        name: str(each.specifier)
        for lock in ("requirements-demo.txt", "requirements.txt")
        for name, each in pinned(ROOT / lock).items()
        if name not in tested or tested[name].specifier != each.specifier
    }
    assert [*others] == ["xllamacpp"]


def test_what_is_pinned_can_be_installed_with_every_python_that_is_promised() -> None:
    oldest = f"{PROJECT['project']['requires-python'].removeprefix('>=')}.0"
    here = [
        name
        for name, each in pinned(ROOT / "requirements-dev.txt").items()
        if each.marker is None or each.marker.evaluate()
    ]
    wanted = {name: metadata.metadata(name).get("Requires-Python") for name in here}

    assert len(wanted) > 50
    assert [name for name, python in wanted.items() if oldest not in SpecifierSet(python or "")] == []


def test_no_lock_names_a_registry() -> None:
    assert [lock.name for lock in LOCKS if "://" in lock.read_text()] == []


def test_pip_refuses_a_file_whose_hash_is_not_in_the_lock(tmp_path: Path) -> None:
    # Given a package that is not the one of the lock
    source = tmp_path / "click-8.5.1"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "click"\nversion = "{version_of("click")}"\n'
        "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n"
    )
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=60)
    [line] = [entry for entry in entries(ROOT / "requirements-dev.txt") if entry.startswith("click==")]
    (tmp_path / "lock.txt").write_text(line)

    # When it is installed as `make` installs what is pinned
    install = ["install", "--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "site")]
    options = ["--isolated", "--require-hashes", "--requirement", str(tmp_path / "lock.txt")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, *options], capture_output=True, text=True, timeout=60
    )

    # Then nothing is installed
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "site").exists()


def version_of(name: str) -> str:
    return str(pinned(ROOT / "requirements-dev.txt")[name].specifier).removeprefix("==")


def test_make_installs_every_lock_with_its_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if "$(PIP_INSTALL)" in line]

    assert re.search(r"^LOCKED := .*--require-hashes --requirement$", makefile, re.MULTILINE)
    assert len(installs) == 5
    assert [
        line for line in installs if "$(LOCKED) requirements" not in line and "--editable ." not in line
    ] == []
    assert [line for line in installs if "--no-deps" not in line and "$(LOCKED)" not in line] == []


def test_nothing_that_is_installed_lacks_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_workflows_of_ci_may_only_read_and_name_actions_by_their_commits() -> None:
    workflows = {path.name: path.read_text() for path in ROOT.glob(".github/workflows/*.yml")}
    assert {*workflows} == {"ci.yml", "newest.yml"}
    for name, text in workflows.items():
        document = yaml.safe_load(text)
        used = re.findall(r"uses: (.+)", text)
        assert document["permissions"] == {"contents": "read"}, name
        assert not any("permissions" in job for job in document["jobs"].values()), name
        assert used, name
        assert [
            each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", each)
        ] == []


PYTHON = "python"

PRIVATE: dict[str, dict[str, str]] = {
    "agent/startup/loading.py": {"_initializing": PYTHON},
    "agent/startup/shutdown.py": {"_pid": PYTHON},
    "coder/model/chat_model.py": {"_client": "openai", "_get_data_content_block_types": "langchain-core"},
    "coder/model/local.py": dict.fromkeys(
        ("_agenerate", "_astream", "_generate", "_stream"), "langchain-openai"
    ),
    "coder/model/openai_chat.py": {
        "__class__": "openai",
        "_iter_events": "openai",
        "_prepare_options": "openai",
        "openai._models.FinalRequestOptions": "openai",
        "openai._streaming.ServerSentEvent": "openai",
        "_astream": "langchain-openai",
        "_convert_chunk_to_generation_chunk": "langchain-openai",
        "_convert_input": "langchain-core",
        "_create_chat_result": "langchain-openai",
        "_default_params": "langchain-openai",
        "_get_request_payload": "langchain-openai",
        "_stream": "langchain-openai",
        "_use_responses_api": "langchain-openai",
    },
    "coder/model/retries.py": {"__class__": "langchain-core"},
    "langchain/answers.py": {"langgraph.checkpoint.serde._msgpack": "langgraph-checkpoint"},
    "langchain/editor_tools/tool_use.py": {"_parse_input": "langchain-core", "_run": "langchain-core"},
    "langchain/file_backends.py": {"__code__": "langchain-core", "__closure__": "deepagents"},
    "langchain/graph_run.py": {"_default_executor": PYTHON},
    "langchain/mcp_tools.py": dict.fromkeys(("_arun", "_run", "_to_args_and_kwargs"), "langchain-core"),
    "langchain/middleware.py": {"__code__": "langchain"},
    "langchain/saver.py": {"_DeltaSnapshot": "langgraph-checkpoint"},
    "langchain/serializer.py": dict.fromkeys(
        ("_allowed_msgpack_modules", "_create_msgpack_ext_hook"), "langgraph-checkpoint"
    ),
    "langchain/tool_calls.py": {"langgraph.pregel._tools._tool_call_writer": "langgraph"},
    "langchain/tool_guard.py": dict.fromkeys(
        (
            "_afunc",
            "_awrap_tool_call",
            "_default_handle_tool_errors",
            "_func",
            "_handle_tool_errors",
            "_wrap_tool_call",
        ),
        "langgraph-prebuilt",
    ),
    "langchain/usage.py": {"_get_ls_params": "langchain-core"},
    "redaction/known_secrets.py": {"_data": PYTHON},
}
"""Names that a package does not promise, by the module that uses them, with the package."""

ALWAYS_THERE = {"_replace", "_asdict", "_fields", "_abc_impl", "_is_protocol", "_name_", "_value_"}
"""Names with an underscore that are public, and what `abc` and `typing` put into classes."""

OVERRIDES = """
import importlib, json, pkgutil, sys
import coupler

found = []
for module in pkgutil.walk_packages(coupler.__path__, "coupler."):
    if module.name.endswith("__main__"):
        continue
    for kind in vars(importlib.import_module(module.name)).values():
        if isinstance(kind, type) and kind.__module__ == module.name:
            known = {"coupler", *sys.stdlib_module_names}
            foreign = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in known]
            for name in vars(kind):
                if name.startswith("_") and not name.startswith("__"):
                    if any(name in vars(base) for base in foreign):
                        found.append([sys.modules[module.name].__file__, name])
print(json.dumps(found))
"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in ALWAYS_THERE


def is_foreign(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return bool(top) and top != "coupler" and top not in sys.stdlib_module_names


class PrivateUses(ast.NodeVisitor):
    """Finds the names in a module that a package does not promise."""

    def __init__(self, tree: ast.Module, own_anywhere: set[str]) -> None:
        self.found: set[str] = set()
        self._own, self._own_anywhere = own_names(tree), own_anywhere
        self._modules = {
            (alias.asname or alias.name).partition(".")[0]: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        self._foreign = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level == 0 and is_foreign(node.module)
            for alias in node.names
        }
        self.visit(tree)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and is_foreign(node.module):
            names = [alias.name for alias in node.names]
            if any(is_private(part) for part in [*str(node.module).split("."), *names]):
                self.found |= {f"{node.module}.{name}" for name in names}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        is_foreign_code = node.attr == "__code__" and self._is_of_foreign(node)
        is_replaced = node.attr in ("__code__", "__class__") and isinstance(node.ctx, ast.Store)
        is_inside = is_foreign_code or is_replaced or node.attr == "__closure__"
        if is_inside or (is_private(node.attr) and not self._is_own(node)):
            self.found.add(node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        """See names that are asked for as text, by `getattr` and `hasattr`."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr", "delattr"):
            owner, name = node.args[:2]
            text = name.value if isinstance(name, ast.Constant) else ""
            if text == "__code__" or (
                is_private(text) and (text not in self._own or self._is_of_foreign(owner))
            ):
                self.found.add(text)

    def _is_of_foreign(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._foreign

    def _is_own(self, node: ast.Attribute) -> bool:
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        if owner in self._modules:
            return not is_foreign(self._modules[owner])
        return node.attr in (self._own_anywhere if owner in ("self", "cls") else self._own)


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines, of functions, classes, variables and its own attributes."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                names.add(node.attr)
    return names


def private_uses() -> dict[str, set[str]]:
    """Return the names that packages do not promise, by the module of Coupler that uses them."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    own = set().union(*map(own_names, trees.values()))
    found = {path: PrivateUses(tree, own).found for path, tree in trees.items()}
    listed = subprocess.run(
        [sys.executable, "-c", OVERRIDES], capture_output=True, text=True, check=True, timeout=120
    )
    for file, name in json.loads(listed.stdout):
        found[Path(file)] |= {name} if is_private(name) else set()
    return {path.relative_to(SOURCE).as_posix(): names for path, names in found.items() if names}


@pytest.mark.long
def test_every_private_name_of_a_package_that_is_used_is_listed() -> None:
    assert private_uses() == {module: {*names} for module, names in PRIVATE.items()}


def test_packages_with_private_names_in_use_have_an_upper_bound() -> None:
    lists = {
        **{f"extra {name}": extra(name) for name in PROJECT["project"]["optional-dependencies"]},
        **{f"group {name}": group(name) for name in PROJECT["dependency-groups"]},
        "core": [Requirement(each) for each in PROJECT["project"]["dependencies"]],
    }
    for package in {package for names in PRIVATE.values() for package in names.values()} - {PYTHON}:
        asked = {where: each for where, found in lists.items() for each in found if each.name == package}
        unbounded = [
            f"{where}: {each}"
            for where, each in asked.items()
            if not {"<", "<=", "==", "~="} & {part.operator for part in each.specifier}
        ]
        assert asked, f"pyproject.toml does not name {package}, whose private names are used"
        assert unbounded == []
