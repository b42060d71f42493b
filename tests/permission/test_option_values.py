"""Rules that end in `*` and options of programs that nobody has listed: what a value looks like decides."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from permission.parts import Bench
from tables import table

ON_PATH = (
    *("sh", "bash", "make", "find", "rm", "node", "python", "test", "install", "time", "date", "sort"),
    "link",
    *("env", "file", "split", "head", "view", "tree", "yes", "id", "top", "look", "users", "host", "size"),
)
"""Programs that are found, so that ordinary values that are also programs' names are tried."""


@pytest.fixture(autouse=True)
def programs(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    for path in (*(directory / name for name in ON_PATH), bench.project / "run.sh"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


ORDINARY = [
    *('pytest -q -k "not slow" tests/', "npm run build -- --mode=production", 'git commit -m "fix the bug"'),
    *("cargo test -p crate --features a,b", "ruff check --config ruff.toml"),
    "mypy --python-version 3.11 src",
    *("docker compose -f docker-compose.yml up -d", "make -j4 test", "black --line-length 100 src"),
    *("isort --profile black src", "eslint --ext .ts,.tsx --fix src", 'prettier --write "src/**/*.ts"'),
    *("tsc --noEmit -p tsconfig.json", "vitest run --coverage --reporter verbose", "tox -e test"),
    "tox -e py311",
    'jest --testNamePattern "adds two numbers" --env test',
    "terraform plan -var-file=dev.tfvars -out plan",
    *("kubectl get pods -n default -o yaml", "helm template ./chart --set image.tag=1.2.3 -f values.yaml"),
    *('gh pr create --title "find the bug" --body "make tests pass"', "gh issue list --label bug --limit 10"),
    *("gh api repos --jq '.[] | .name'", "nox -s tests -- -x", "coverage report --fail-under 90 -m"),
    *("pre-commit run --all-files", "alembic upgrade head --sql", "flask --app app.main routes"),
    *("uvicorn app.main:app --reload --port 8000 --host 127.0.0.1", "celery -A app worker -l info"),
    *("rustfmt --edition 2021 src/main.rs", "rustc -O -C opt-level=3 main.rs", "mvn -q -DskipTests package"),
    *("gradle test --tests com.example.FooTest -PbuildType=debug", "swift build -c release"),
    *('dotnet test --filter "Category=unit" -c Release', 'flutter test --plain-name "counter increments"'),
    *("bundle install --path vendor", "rspec --format documentation spec"),
    "phpunit --filter testFoo -c phpunit.xml",
    *("composer install --no-dev --prefer-dist", "mix test --only unit --seed 0"),
    "stack build --fast --test",
    "pandoc -f markdown -t html README.md -o README.html",
    "protoc --python_out=src -I proto proto/a.proto",
    *('curl -sS -H "Accept: application/json" -d \'{"a": 1}\' https://example.com', "just build release"),
    *("ffmpeg -i in.mp4 -c:v libx264 -crf 23 out.mp4", "openssl x509 -in cert.crt -noout -text"),
    *("nmap -p 80,443 localhost", "rake test TEST=test/a_test.rb", "nix flake check --show-trace"),
    *("semgrep --config auto --lang python src", "ctags -R --languages=python --exclude=.git"),
    "tree -L 2 -I 'a|b'",
    *("turbo run build --filter web", "yarn workspace web test --watch=false"),
    "pnpm --filter test run build",
    *("bandit -r src -ll -x tests", "sphinx-build -b html docs docs/_build"),
    "mkdocs build --strict --site-dir site",
    *('go test ./... -run TestFoo -ldflags "-s -w -X main.version=1"', "go build -o bin/app ./cmd/app"),
    *("tar -xzf a.tgz -C build", "tar --recursive-unlink -xf a.tar -C src", "grep -e 'a(b|c) d' src/main.py"),
    *("pylint --jobs 4 --output-format=text src", "sort-imports --sort time", "ls --sort time"),
    "jq -e '.a | .b' x",
    *("deploy --stage test --region eu-west-1 --dry-run", "hatch env show --ascii"),
    "poetry add --group test x",
    *("svn commit -m 'make it work'", "tool --out /dev/null --quiet", "tool --date '2024-01-01 10:00'"),
]


@table("command", ORDINARY)
def test_ordinary_options_pass_a_rule_that_ends_in_a_wildcard(bench: Bench, command: str) -> None:
    verdict = bench.run(command, f"execute({shlex.split(command)[0]} *)")
    assert verdict.decision == "allow", verdict.reason


STARTING = [
    *("go build -ldflags=-extld=evil", "go build -ldflags '-linkmode external -extld evil'"),
    *("openssl dgst -engine evil x", "openssl dgst -engine ./evil.so x", "nmap --script evil x"),
    "nmap --script=evil x",
    *("rustc -C linker=evil x.rs", "rustc -Clinker=evil x.rs", "just --shell evil x", "just --shell=bash x"),
    *("rake -e 'system(\"x\")'", "rake -e 'puts 1'", "nix develop -c sh", "nix develop --command sh"),
    *("tool --hook 'sh -c x'", "tool --on-change 'rm x'", "tool --on-change='rm x'", "tool --hook ./run.sh"),
    *("tool --anything=./run.sh", "tool -x ./run.sh", "tool --exec anything", "tool -- sh"),
    "tool --pre-cmd=x",
    *("tool --editor bash", "tool --with 'test -f x; rm y'", "tar --recursive-unlink -xf x -C /"),
    *("tar -xf x --directory=/etc", "tar -xf x -C .."),
]
ELSEWHERE = [
    "tool --output /usr/x",
    "tool --output=/etc/x",
    "tool -o ../x",
    "tool -o~/x",
    "tool -q /etc/hosts",
]


@table("command", [*STARTING, *ELSEWHERE])
def test_options_that_may_start_a_program_or_lead_elsewhere_do_not(bench: Bench, command: str) -> None:
    assert bench.run(command, f"execute({shlex.split(command)[0]} *)").decision == "ask"


@table(
    ("rule", "command"),
    [
        ("execute(nix develop -c *)", "nix develop -c sh"),
        ("execute(tool --exec *)", "tool --exec anything"),
        ("execute(tool --output /usr/x)", "tool --output /usr/x"),
        ("execute(tool --on-change 'rm x')", "tool --on-change 'rm x'"),
        ("execute", "tool --output /usr/x"),
    ],
)
def test_a_rule_that_names_the_option_or_all_words_allows_it(bench: Bench, rule: str, command: str) -> None:
    assert bench.run(command, rule).decision == "allow"


def test_a_rule_for_a_program_that_starts_none_means_any_place(bench: Bench) -> None:
    for command in ("cp -t /tmp src/main.py", "ls -d /etc", "cat -n /etc/hosts"):
        assert bench.run(command, f"execute({command.split()[0]} *)").decision == "allow"
