"""Pieces of a self-contained HTML page: its frame and style, escaped text, tables, figures, folded sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from ..plots.svg import FONTS, WIDTH

_STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 24px 30px 48px; max-width: {WIDTH + 60}px; background: #ffffff; color: #222222;
  font: 15px/1.5 {FONTS}; }}
h1 {{ font-size: 26px; line-height: 1.25; margin: 8px 0 4px; overflow-wrap: anywhere; }}
h2 {{ font-size: 19px; margin: 36px 0 8px; }}
p, li {{ max-width: 52em; overflow-wrap: anywhere; }}
.facts {{ color: #555555; margin: 0 0 16px; }}
.verdict {{ font-size: 17px; margin: 16px 0 8px; padding: 12px 16px; max-width: none; border-left: 5px solid #0072b2;
  background: #eef4f9; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }}
table.wide {{ width: 100%; font-size: 13.5px; }}
th, td {{ padding: 4px 6px; text-align: right; vertical-align: top; border-bottom: 1px solid #e2e2e2; }}
th:first-child, td:first-child {{ text-align: left; overflow-wrap: anywhere; }}
table.texts th, table.texts td {{ text-align: left; }}
table.wide td:first-child {{ min-width: 150px; }}
thead th {{ vertical-align: bottom; border-bottom: 2px solid #888888; font-weight: 600; line-height: 1.3; }}
td small, th small {{ display: block; color: #555555; font-size: 11.5px; font-weight: 400; white-space: nowrap; }}
tr.learned td {{ background: #eef4f9; font-weight: 600; }}
tr.learned td small {{ font-weight: 400; }}
figure {{ margin: 18px 0 34px; }}
figure svg {{ display: block; max-width: 100%; height: auto; }}
.panels {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 18px; }}
.panels svg {{ width: 100%; }}
figcaption {{ margin-top: 6px; max-width: 62em; font-size: 13.5px; color: #444444; }}
pre, code {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }}
pre {{ margin: 8px 0; padding: 10px 14px; background: #f5f5f5; white-space: pre-wrap; overflow-wrap: anywhere; }}
details {{ margin: 8px 0; border-top: 1px solid #e2e2e2; padding-top: 8px; }}
summary {{ cursor: pointer; font-weight: 600; }}
@media (max-width: 600px) {{ body {{ padding: 12px 12px 32px; }} h1 {{ font-size: 21px; }} }}
@media print {{
  body {{ padding: 0; max-width: none; font-size: 11pt; }}
  figure, tr, .verdict {{ break-inside: avoid; }}
  h2 {{ break-after: avoid; }}
  .verdict, tr.learned td, svg {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
"""


def page(title: str, body: Iterable[str]) -> str:
    """A page that loads nothing and runs nothing.

    Args:
        title: plain text.
        body: elements.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
            f"<title>{escaped_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>\n",
        ]
    )


def escaped_text(plain: object) -> str:
    """Text that stands for itself in a page; what cannot be printed becomes a question mark."""
    return escape("".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in str(plain)))


def table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], *, kind: Literal["", "wide", "texts"] = "") -> str:
    """A table.

    Args:
        head: cells of the heading, as HTML.
        rows: class (or an empty text) and cells of each row, as HTML.
        kind: ``wide`` takes the whole width, ``texts`` aligns all cells to the left.
    """
    lines = [f'<div class="scroll"><table class="{kind or "numbers"}">', "<thead><tr>"]
    lines += [f'<th scope="col">{cell}</th>' for cell in head]
    lines += ["</tr></thead>", "<tbody>"]
    for mark, cells in rows:
        lines.append(f'<tr class="{mark}">' if mark else "<tr>")
        lines += [f"<td>{cell}</td>" for cell in cells]
        lines.append("</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def figure(svg: str | Sequence[str], number: int, caption: str) -> str:
    """A drawing, or several side by side, with its caption (HTML); namespaces are the page's own, so drawings name none."""
    drawn = _without_namespaces(svg) if isinstance(svg, str) else "\n".join(map(_without_namespaces, svg))
    drawn = drawn if isinstance(svg, str) else f'<div class="panels">\n{drawn}</div>'
    return f"<figure>\n{drawn}<figcaption><b>Figure {number}.</b> {caption}</figcaption>\n</figure>"


def _without_namespaces(svg: str) -> str:
    head, rest = svg[: svg.index(">")], svg[svg.index(">") :]
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", head) + rest


def folded(summary: str, content: str) -> str:
    """A section (HTML) that opens when its summary (plain text) is clicked."""
    return f"<details><summary>{escaped_text(summary)}</summary>\n{content}\n</details>"


def listing(plain: str) -> str:
    """Text with its line breaks."""
    return f"<pre>{escaped_text(plain.strip())}</pre>"
