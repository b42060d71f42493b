"""The forms of a report: for a terminal, for programs (JSON), for CI (JUnit), and for a browser (HTML)."""
