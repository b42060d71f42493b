"""What OpenTelemetry gets to see of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TRACED = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from workflow.stage import Stage

stage = Stage('''
steps:
  - id: both
    parallel: [{id: a, run: say secret words}, {id: b, run: fail_until 2, retry: {attempts: 2, delay: 0}}]
  - {id: bad, run: fail 3}
''')
with trace.get_tracer("editor").start_as_current_span("editor"):
    stage.run()
spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
print(json.dumps([
    [span.name, span.parent and names[span.parent.span_id], dict(span.attributes),
     span.status.status_code.name]
    for span in spans
]))
"""


def test_runs_steps_and_attempts_are_spans_inside_of_each_other() -> None:
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, env={"PYTHONPATH": tests}, check=True
    )

    spans = {
        (name, parent): (attributes, status) for name, parent, attributes, status in json.loads(done.stdout)
    }
    assert ("run main", "editor") in spans
    assert ("step both", "run main") in spans
    assert ("step a", "attempt 1") in spans
    assert spans["attempt 1", "step b"][1] == "ERROR"
    assert spans["attempt 2", "step b"][1] == "UNSET"
    attributes, status = spans["step bad", "run main"]
    assert (attributes["coupler.step.path"], attributes["error.type"], status) == ("bad", "exit", "ERROR")
    assert "secret words" not in done.stdout
