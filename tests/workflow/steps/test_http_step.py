"""`http` steps through the real `coupler run`, against a server of this process."""

from __future__ import annotations

import json
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from coder.waiting import until
from coupler.workflow.steps.http_request import _host_is_given
from raw_client import COUPLER, PATIENCE
from workflow.http_site import Site
from workflow.project import Project, Ran

TOKEN = "token-of-a-test-4711"


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.env |= {"MY_TOKEN": TOKEN, "no_proxy": "host.invalid", "http_proxy": "http://127.0.0.1:9"}
    return project


def flow_of(project: Project, site: Site, text: str) -> Path:
    return project.write("flow.yaml", textwrap.dedent(text).replace("SITE", site.url))


def run(project: Project, site: Site, text: str, *words: str) -> Ran:
    return project.run(flow_of(project, site, text), *words)


def test_a_request_is_sent_as_it_is_written_and_its_response_can_be_read(
    project: Project, site: Site
) -> None:
    site.says("/issues/7", {"number": 7, "title": "Broken"}, status=201, X_Limit="9")
    site.says("/plain", b"two\nlines", Content_Type="text/plain; charset=utf-8")

    ran = run(
        project,
        site,
        """
        secrets: [MY_TOKEN]
        steps:
          - {id: made, set: {labels: "['bug', 'a&b']"}}
          - id: post
            http: SITE/issues/{{ 3 + 4 }}?page=1
            method: POST
            headers: {Authorization: "Bearer {{ secrets.MY_TOKEN }}", X-Trace: abc}
            query: {state: open, label: "{{ vars.labels }}", none: null, deep: 1.5}
            body: {title: "{{ vars.labels[0] }}", done: false}
          - {id: get, http: SITE/plain}
          - id: text
            http: SITE/plain
            method: PUT
            body: a {{ vars.labels[1] }}
            headers: {content-type: text/x}
        outputs:
          post: "{{ [steps.post.status_code, steps.post.output.title, steps.post.headers['x-limit']] }}"
          get: "{{ steps.get.text }}"
        """,
    )

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"post": [201, "Broken", "9"], "get": "two\nlines"}
    (post, got, text) = site.asked
    assert post[:2] == ("POST", "/issues/7?page=1&state=open&label=bug&label=a%26b&deep=1.5")
    assert json.loads(post[3]) == {"title": "bug", "done": False}
    assert post[2]["authorization"] == f"Bearer {TOKEN}"
    assert (post[2]["content-type"], post[2]["x-trace"]) == ("application/json", "abc")
    assert post[2]["user-agent"].startswith("Coupler/")
    assert (got[0], got[3]) == ("GET", "")
    assert (text[0], text[2]["content-type"], text[3]) == ("PUT", "text/x", "a a&b")
    assert "output" not in ran.result("get")


def test_secrets_are_hidden_in_the_journal_the_log_and_a_dry_run(project: Project, site: Site) -> None:
    site.says("/echo", {"got": TOKEN}, X_Echo=TOKEN)
    text = """
        secrets: [MY_TOKEN]
        steps:
          - id: echo
            http: SITE/echo
            query: {token: "{{ secrets.MY_TOKEN }}", page: "{{ 1 + 1 }}"}
            headers: {X-Token: "{{ secrets.MY_TOKEN }}"}
            method: POST
            body: {token: "{{ secrets.MY_TOKEN }}", page: "{{ 1 + 1 }}"}
          - {id: stop, run: "test -e mended"}
          - {id: after, http: SITE/echo, headers: {X-Again: "{{ steps.echo.output.got }}"}}
        """

    dry = project.coupler_text("run", str(flow_of(project, site, text)), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert f"| POST {site.url}/echo?token={{{{ secrets.MY_TOKEN }}}}&page=2\n" in dry.stdout
    assert "| X-Token: {{ secrets.MY_TOKEN }}\n" in dry.stdout
    assert '| {"token":"{{ secrets.MY_TOKEN }}","page":2}\n' in dry.stdout
    assert site.asked == []

    ran = run(project, site, text)
    logs = project.coupler_text("runs", "logs", ran.id)
    shown = project.coupler_text("runs", "show", ran.id)
    for told in (dry.stdout, ran.stdout, ran.stderr, logs.stdout, shown.stdout):
        assert TOKEN not in told
    project.write("mended", "")
    resumed = project.resume(ran.id)
    assert resumed.exit_code == 0, resumed
    assert site.asked[-1][2]["x-again"] == TOKEN


def test_a_status_that_is_not_expected_fails_the_step(project: Project, site: Site) -> None:
    site.says("/gone", {"message": "no such thing"}, status=404)
    site.says("/moved", b"", status=302, Location="/gone")
    site.says("/busy", {}, status=503)

    ran = run(
        project,
        site,
        """
        defaults: {on_error: continue}
        steps:
          - {id: gone, http: SITE/gone}
          - {id: fine, http: SITE/gone, ok_status: [2xx, 404]}
          - {id: range, http: SITE/gone, ok_status: [400-403, 405-499]}
          - {id: moved, http: SITE/moved, ok_status: [302]}
          - {id: busy, http: SITE/busy, retry: {attempts: 2, delay: 0, on: [http]}}
          - {id: host, http: "http://host.invalid/"}
          - {id: nobody, http: "http://127.0.0.1:1/"}
          - {id: head, http: SITE/gone, method: HEAD, ok_status: [4xx]}
        """,
    )

    assert ran.exit_code == 0, ran
    gone = ran.result("gone")
    assert gone["error"] == {
        "kind": "http",
        "message": f'GET {site.url}/gone was answered with 404 Not Found: {{"message": "no such thing"}}.',
    }
    assert (gone["status_code"], gone["output" if "output" in gone else "text"]) == (
        404,
        '{"message": "no such thing"}',
    )
    assert ran.result("fine")["output"] == {"message": "no such thing"}
    assert ran.result("moved")["headers"]["location"] == "/gone"
    kinds = {name: ran.result(name).get("error", {}).get("kind") for name in ran.statuses}
    assert kinds == {
        **dict.fromkeys(["gone", "range", "busy", "nobody"], "http"),
        **dict.fromkeys(["fine", "moved", "head"]),
        "host": "not_found",
    }
    assert site.paths.count("/busy") == 2


def test_output_is_json_that_fits_a_schema_or_the_step_fails(project: Project, site: Site) -> None:
    site.says("/json", {"n": 1})
    site.says("/said", b'{"n": 1}', Content_Type="text/plain")
    site.says("/wrong", b'{"n": 1', Content_Type="application/problem+json")
    site.says("/large", b" " * (10 * 1024 * 1024 + 1))
    project.write("n.json", '{"type": "object", "required": ["n"]}')

    ran = run(
        project,
        site,
        """
        defaults: {on_error: continue}
        steps:
          - {id: schema, http: SITE/json, output: {type: object, required: [m]}}
          - {id: file, http: SITE/json, output: n.json}
          - {id: said, http: SITE/said, output: json}
          - {id: unsaid, http: SITE/said}
          - {id: wrong, http: SITE/wrong}
          - {id: forced, http: SITE/wrong, output: json}
          - {id: large, http: SITE/large}
        """,
    )

    assert ran.exit_code == 0, ran
    errors = {name: ran.result(name).get("error", {}).get("message", "") for name in ran.statuses}
    assert errors == {
        "schema": "The response does not fit the schema, at `$`: 'm' is a required property.",
        **dict.fromkeys(["file", "said", "unsaid", "wrong"], ""),
        "forced": "The response is not JSON: it ends too early in line 1, column 8.",
        "large": f"The response of {site.url}/large is longer than 10 MiB.",
    }
    assert {name: ran.result(name).get("output") for name in ("file", "said", "unsaid", "wrong")} == {
        "file": {"n": 1},
        "said": {"n": 1},
        "unsaid": None,
        "wrong": None,
    }


def test_a_server_that_wants_to_be_asked_later_is_asked_later(project: Project, site: Site) -> None:
    site.says("/limited", {}, status=429, Retry_After="1")
    site.says("/limited", {"ok": True})

    ran = run(project, site, "steps: [{id: get, http: SITE/limited, retry: {attempts: 2, delay: 0}}]")

    assert ran.exit_code == 0, ran
    (planned,) = ran.of("retry_planned")
    assert (planned["delay"], planned["error"]["kind"]) == (1.0, "rate_limit")


def test_a_redirect_is_followed_and_nothing_of_the_step_goes_to_another_origin(
    project: Project, site: Site
) -> None:
    other = Site()
    other.says("/there", {"there": True})
    site.says("/here", {"here": True})
    site.says("/near", b"", status=302, Location="/here")
    site.says("/far", b"", status=302, Location=f"{other.url}/there")
    site.says("/kept", b"", status=307, Location=f"{other.url}/there")
    site.says("/round", b"", status=302, Location="/round")
    allowed = project.write("home/coupler.toml", f'[permissions]\nallow = ["fetch({other.url}/*)"]\n')
    text = """
        defaults: {on_error: continue}
        steps:
          - {id: near, http: SITE/near, method: POST, body: x, headers: {X-Own: a}}
          - {id: far, http: SITE/far, headers: {X-Own: a}}
          - {id: kept, http: SITE/kept, method: POST, body: x}
          - {id: round, http: SITE/round}
        """

    refused = run(project, site, text)
    assert other.asked == []
    assert refused.result("far")["error"]["kind"] == "denied"
    assert (
        "which is not public" in refused.result("far")["error"]["message"]
        or "is not public" in (refused.result("far")["error"]["message"])
    )
    assert [each[:2] for each in site.asked[:2]] == [("POST", "/near"), ("GET", "/here")]
    assert site.asked[1][2]["x-own"] == "a"
    assert site.asked[1][3] == ""

    project.env["COUPLER_CONFIG_HOME"] = str(allowed.parent)
    project.env["COUPLER_HOME"] = str(allowed.parent)
    ran = run(project, site, text)
    assert ran.result("far").get("output") == {"there": True}, ran
    assert "x-own" not in other.asked[0][2]
    assert len(other.asked) == 1
    assert "goes to no other server" in ran.result("kept")["error"]["message"]
    assert "more than 5 times" in ran.result("round")["error"]["message"]
    other.close()


def test_rules_about_fetch_hold_for_the_address_and_for_each_that_it_leads_on_to(
    project: Project, site: Site
) -> None:
    site.says("/open", {"open": True})
    site.says("/closed", {"closed": True})
    site.says("/leads", b"", status=302, Location="/closed")
    site.says("/asked", {"asked": True})
    project.write(
        "coupler.toml",
        f'[permissions]\ndeny = ["fetch({site.url}/closed)"]\nask = ["fetch({site.url}/asked)"]\n',
    )
    text = """
        steps:
          - {id: open, http: SITE/open}
          - {id: closed, http: SITE/closed, on_error: continue}
          - {id: leads, http: SITE/leads, on_error: continue}
          - {id: asked, http: SITE/asked, on_error: continue}
        """

    ran = run(project, site, text)
    assert ran.exit_code == 0, ran
    assert site.paths == ["/open", "/leads"]
    for step in ("closed", "leads", "asked"):
        assert ran.result(step)["error"]["kind"] == "denied"
    assert "denied by" in ran.result("closed")["error"]["message"]

    ran = run(project, site, text, "--yes")
    assert site.paths[2:] == ["/open", "/leads", "/asked"]
    assert ran.result("asked")["output"] == {"asked": True}


def test_whose_host_it_is_shows_in_the_address() -> None:
    for url, is_given in (
        ("http://localhost:8080/x", True),
        ("http://localhost:{{ steps.server.stdout }}/{{ item }}", True),
        ("https://[::1]/{{ steps.x.text }}", True),
        ("{{ inputs.base }}/{{ secrets.KEY }}", True),
        ("http://{{ steps.x.text }}/", False),
        ("http://10.0.0.{{ vars.n }}/", False),
        ("http://api.{{ item }}", False),
        ("{{ vars.base }}/x", False),
    ):
        assert _host_is_given(url) == is_given, url


def test_a_server_that_names_a_slow_encoding_or_a_wrong_address_is_no_trouble(
    project: Project, site: Site
) -> None:
    site.says("/odd", b"a-b", Content_Type="text/plain; charset=punycode")
    site.says("/latin", "é".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    site.says("/bytes", b"\xff\xfe\x00", Content_Type="application/octet-stream")
    site.says("/leads", b"", status=302, Location="http://[")

    ran = run(
        project,
        site,
        """
        steps:
          - {id: odd, http: SITE/odd}
          - {id: latin, http: SITE/latin}
          - {id: bytes, http: SITE/bytes}
          - {id: leads, http: SITE/leads, on_error: continue}
        outputs: {odd: "{{ steps.odd.text }}", latin: "{{ steps.latin.text }}"}
        """,
    )

    assert ran.exit_code == 0, ran
    assert ran.outputs == {"odd": "a-b", "latin": "é"}
    assert ran.result("bytes")["text"] == "\udcff\udcfe\x00"
    assert ran.result("leads")["error"]["kind"] == "http"


def test_a_private_host_that_an_answer_names_is_not_asked(project: Project, site: Site) -> None:
    site.says("/where", {"url": f"{site.url}/secret"})
    site.says("/secret", {})

    ran = run(
        project,
        site,
        """
        inputs: {base: {default: SITE}}
        steps:
          - {id: where, http: "{{ inputs.base }}/where"}
          - {id: there, http: "{{ steps.where.output.url }}"}
        """,
    )

    assert ran.exit_code == 3, ran
    assert site.paths == ["/where"]
    assert ran.result("there")["error"]["kind"] == "denied"


def test_a_value_cannot_become_another_header(project: Project, site: Site) -> None:
    ran = run(
        project,
        site,
        r"""
        steps:
          - {id: made, set: {word: "'a\\r\\nX-Other: b'"}}
          - {id: sent, http: SITE/x, headers: {X-Own: "{{ vars.word }}"}}
        """,
    )

    assert ran.exit_code == 3, ran
    assert site.asked == []
    assert ran.result("sent")["error"] == {
        "kind": "template",
        "message": "the header `X-Own` must be one line of ASCII characters",
    }


def test_a_timeout_and_a_cancel_end_a_request_at_once(project: Project, site: Site) -> None:
    slow = run(project, site, "steps: [{id: slow, http: SITE/slow, timeout: 200ms}]")
    assert slow.result("slow")["error"]["kind"] == "timeout", slow

    before = len(site.asked)
    flow = flow_of(project, site, "steps: [{id: slow, http: SITE/slow}]")
    process: Any = forked.Popen(
        [*COUPLER, "run", str(flow), "--json"],
        cwd=project.directory,
        env=project.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(site.asked) > before)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    written, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, written
    assert time.monotonic() - began < 5
    assert '"status":"cancelled"' in written


def test_a_mock_stands_for_the_response(project: Project, site: Site) -> None:
    project.write("said.json", '{"n": 3}')

    ran = run(
        project,
        site,
        """
        steps: [{id: get, http: SITE/n}]
        outputs: {n: "{{ steps.get.output.n + steps.get.status_code }}"}
        """,
        "--mock",
        "get=said.json",
    )

    assert ran.outputs == {"n": 203}, ran
    assert site.asked == []


def test_what_is_wrong_with_a_request_has_its_place_in_the_file(project: Project, site: Site) -> None:
    flow = flow_of(
        project,
        site,
        """\
        steps:
          - http: api.example.com/x
            headers: {Host: x, "a b": y}
            ok_status: [2xx, 299-200]
            body: {}
          - {id: get, http: https://x.example, run: make}
          - {id: sent, http: https://x.example, env: {A: b}}
          - {id: more, http: https://x.example, methd: POST, ok_status: [ok]}
        """,
    )

    checked = project.coupler_text("workflows", "validate", str(flow))

    assert checked.returncode == 2
    told = [line.removeprefix("flow.yaml:") for line in checked.stdout.splitlines()]
    assert [line for line in told if "is no key" not in line] == [
        "2:11: error: `api.example.com/x` is no address: it begins with https:// or http:// and a host",
        "3:21: error: the header `Host` follows from the request: leave it out",
        "3:31: error: `a b` is no name of a header",
        "4:16: error: no status is in 299-200: write 200-299",
        "5:11: warning: a GET request with a `body` is refused or ignored by most servers: say another "
        "`method`, such as POST",
        "6:40: error: a step does one thing: either `http` or `run`",
        "8:66: error: `ok_status` must be a class such as `2xx`, or a range such as `200-204`",
    ]
    unknown = [line for line in told if "is no key" in line]
    assert "`env` is no key of an `http` step" in unknown[0]
    assert "did you mean `method`?" in unknown[1]
