"""Runs in an editor as OpenTelemetry sees them: parts of the trace that the prompt belongs to."""

from __future__ import annotations

import json
import os
from pathlib import Path

from agent.steps import leave
from workflow.served_project import Editor, opened, served, write_workflow

LISTENING = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Writing(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                file.write(span.to_json(indent=None) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Writing()))
trace.set_tracer_provider(provider)
"""

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_run_belongs_to_the_trace_of_its_prompt_if_that_names_one(tmp_path: Path) -> None:
    write_workflow(tmp_path / "workflows", "short", "steps: [{id: one, set: {x: 1}}]")
    (tmp_path / "sitecustomize.py").write_text(LISTENING)
    spans = tmp_path / "spans"
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with served(home=tmp_path, cwd=tmp_path, env={"SPANS": str(spans), "PYTHONPATH": paths}) as client:
        editor = opened(client, tmp_path)
        metas = [
            {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "editor=zed"},
            {"traceparent": "not one", "tracestate": 7},
            {},
        ]
        for meta in metas:
            run_with_meta(editor, meta)
        leave(client)

    told = [json.loads(line) for line in spans.read_text().splitlines()]
    in_trace, *others = [span for span in told if span["name"] == "run short"]
    assert (in_trace["context"]["trace_id"], in_trace["parent_id"]) == (f"0x{TRACE}", f"0x{SPAN}")
    assert "zed" in in_trace["context"]["trace_state"]
    assert [span["parent_id"] for span in others] == [None, None]
    steps = [span["context"]["trace_id"] for span in told if span["name"] == "step one"]
    assert steps.count(f"0x{TRACE}") == 1


def run_with_meta(editor: Editor, meta: dict[str, object]) -> None:
    request = editor.client.prompt_request(editor.session, "/short")
    request["params"]["_meta"] = meta
    editor.client.send(request)
    assert editor.finish(request).reason == "end_turn"
