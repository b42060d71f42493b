"""Pages as text."""

from __future__ import annotations

from coupler.coder.tools.page_text import readable
from tables import table

HERE = "https://example.org/docs/page.html"


@table(
    ("page", "text"),
    [
        ("<p>One</p><p>Two  words\nhere</p>", "One\n\nTwo words here"),
        ("<h2>Title</h2>text", "## Title\n\ntext"),
        ("a<br>b", "a\nb"),
        ("<p>some <b>bold</b>, <i>thin</i> and <code>x = 1</code></p>", "some **bold**, *thin* and `x = 1`"),
        ("<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>", "- one\n  - inner\n- two"),
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<pre><code>if x:\n    y</code></pre>", "```\nif x:\n    y\n```"),
        ("<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>", "| A | B |\n| 1 | 2 |"),
        (
            "see <a href='other.html'>this page</a> now",
            "see [this page](https://example.org/docs/other.html) now",
        ),
        ("<a href='#there'>there</a>", "there"),
        ("<a href='javascript:evil()'>there</a>", "there"),
        ("<img src=x alt='a cat'>", "[image: a cat]"),
        ("&lt;tag&gt; &amp; more", "<tag> & more"),
        ("<p>said</p><script>if (a < b) evil()</script><style>p{}</style><p>more</p>", "said\n\nmore"),
        ("<nav><ul><li>menu</ul></nav><main>text</main><footer>imprint</footer>", "text"),
        ("<svg><path/></svg>text<svg/>more", "textmore"),
        ("<p>never <b>closed", "never **closed"),
        ("</div></p>text</ul></pre>", "text"),
        ("", ""),
    ],
)
def test_what_is_said_to_readers_is_kept_with_its_shape(page: str, text: str) -> None:
    assert readable(f"<body>{page}</body>", HERE).strip() == text


def test_the_title_stands_above_a_page_that_does_not_say_it_itself() -> None:
    page = "<html><head><title>Of &amp; on</title><meta x></head><body>{}</body></html>"
    assert readable(page.format("text"), HERE) == "# Of & on\n\ntext\n"
    assert readable(page.format("<h1>Of &amp; on</h1>text"), HERE) == "# Of & on\n\ntext\n"


def test_a_head_that_never_ends_hides_no_page() -> None:
    assert readable("<head><title>T</title><body>text", HERE) == "# T\n\ntext\n"
