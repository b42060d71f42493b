"""Variables of commands: those that no program obeys are the project's own, and need no question."""

from __future__ import annotations

from permission.parts import Bench
from tables import table

OWN = [
    *("FOO=1", "DEBUG=1", "DEBUG=true", "APP_ENV=test", "RUST_LOG=debug", "RUST_LOG=app=debug,hyper=info"),
    "X=",
    *("VERBOSE=yes", "TEST_SEED=42", "MY_APP_LEVEL=info", "RAILS_ENV=test", "LOG_LEVEL=warn", "E2E=1"),
    "A_B_C=x.y",
    *("RETRIES=3", "FEATURE_X=on", "STAGE=dev", "SLOW=1", "UPDATE_SNAPSHOTS=1", "LANG=C"),
]

OBEYED = [
    *("PATH=x", "LD_PRELOAD=x", "LD_LIBRARY_PATH=x", "DYLD_INSERT_LIBRARIES=x", "IFS=x", "ENV=x"),
    "BASH_ENV=x",
    *("SHELL=x", "HOME=x", "TMPDIR=x", "PS4=x", "PROMPT_COMMAND=x", "CDPATH=x", "SHELLOPTS=xtrace"),
    *("PYTHONPATH=x", "PYTHONSTARTUP=x", "PYTHONINSPECT=1", "PYTEST_ADDOPTS=x", "PYTEST_PLUGINS=x"),
    *("NODE_OPTIONS=x", "NODE_PATH=x", "npm_config_script_shell=x", "NPM_CONFIG_PREFIX=x", "PERL5OPT=x"),
    *("PERL5LIB=x", "RUBYOPT=x", "RUBYLIB=x", "BUNDLE_GEMFILE=x", "GEM_HOME=x", "JAVA_TOOL_OPTIONS=x"),
    *("JAVA_HOME=x", "_JAVA_OPTIONS=x", "CLASSPATH=x", "MAVEN_OPTS=x", "GIT_SSH_COMMAND=x", "GIT_DIR=x"),
    *("GIT_EXTERNAL_DIFF=x", "EDITOR=x", "VISUAL=x", "PAGER=x", "MANPAGER=x", "LESSOPEN=x", "LESS=x"),
    "BROWSER=x",
    *("CC=x", "CXX=x", "LD=x", "CFLAGS=x", "LDFLAGS=x", "MAKEFLAGS=x", "MAKEFILES=x", "RUSTC=x"),
    "RUSTC_WRAPPER=x",
    *("RUSTFLAGS=x", "CARGO_HOME=x", "CARGO_BUILD_RUSTC=x", "GOFLAGS=x", "GOPROXY=x", "GO111MODULE=on"),
    "CGO_ENABLED=1",
    *("HTTP_PROXY=x", "https_proxy=x", "ALL_PROXY=x", "NO_PROXY=x", "SSL_CERT_FILE=x", "SSH_ASKPASS=x"),
    "RSYNC_RSH=x",
    *("XDG_CONFIG_HOME=x", "DOCKER_HOST=x", "KUBECONFIG=x", "AWS_PROFILE=x", "PIP_INDEX_URL=x", "UV_INDEX=x"),
    *("DJANGO_SETTINGS_MODULE=x", "FLASK_APP=x", "ELECTRON_RUN_AS_NODE=1", "OPENSSL_CONF=x", "GCONV_PATH=x"),
    *("MY_COMMAND=x", "APP_CMD=x", "APP_SHELL=x", "FOO_PRELOAD=x", "MY_PROXY_SETTING=x", "X_OPTIONS=x"),
    "FOO_HOME=x",
    *("FOO_PATH=x", "FOOPATH=x", "APP_PLUGINS=x", "DATABASE_URL=x", "LUA_INIT=x", "PHPRC=x", "R_PROFILE=x"),
    "ZDOTDIR=x",
    *("COVERAGE_PROCESS_START=x", "TF_CLI_ARGS=x", "ANSIBLE_CONFIG=x", "GLIBC_TUNABLES=x", "PGHOST=x"),
    "MYPYPATH=x",
    *("Foo=1", "foo_bar=1", "_FOO=1", "FOO__BAR=1"),
]

NOT_PLAIN = [
    *("FOO=/tmp/x", "FOO='a b'", "FOO=a/b", "FOO=$X", 'FOO="$X"', "FOO=$(ls)", "FOO='a;b'", "FOO='$(ls)'"),
    "FOO=-x",
    *("FOO=../x", "FOO=~", "FOO='a|b'", "FOO=" + "x" * 200, "FOO+=1", "FOO=(a)", "FOO=https://x.org"),
]


@table("variable", OWN)
def test_a_variable_of_the_project_is_no_doubt(bench: Bench, variable: str) -> None:
    name, _, value = variable.partition("=")
    for command in (f"{variable} pytest -q", f"env {variable} pytest -q", f"{variable}; pytest -q"):
        verdict = bench.run(command, "execute(pytest *)")
        assert verdict.decision == "allow", (command, verdict.reason)
    action = bench.action("execute", command="pytest -q", env=((name, value),))
    assert bench.judge(action, ["execute(pytest *)"]).decision == "allow"


@table("variable", OBEYED)
def test_a_variable_that_a_program_obeys_is_asked_about(bench: Bench, variable: str) -> None:
    name, _, value = variable.partition("=")
    for command in (f"{variable} pytest -q", f"env {variable} pytest -q"):
        assert bench.run(command, "execute(pytest *)").decision == "ask", command
    action = bench.action("execute", command="pytest -q", env=((name, value),))
    assert bench.judge(action, ["execute(pytest *)"]).decision == "ask"


@table("variable", NOT_PLAIN)
def test_a_value_that_is_no_plain_text_is_asked_about(bench: Bench, variable: str) -> None:
    for command in (f"{variable} pytest -q", f"env {variable} pytest -q"):
        assert bench.run(command, "execute(pytest *)").decision == "ask", command


def test_a_variable_whose_value_is_not_known_is_asked_about(bench: Bench) -> None:
    action = bench.action("execute", command="pytest -q", env=("FOO",))
    assert bench.judge(action, ["execute(pytest *)"]).decision == "ask"
