"""What notebooks show of networks, programs and verdicts: HTML of text, nothing of it active.

Records know nothing of reports; what renders one is loaded when a notebook asks (see `printing`).
"""

from __future__ import annotations

from html import escape

from verax.base.printing import rendered

LINES = 400
"""Of a long text; the rest is counted."""
STYLE = "white-space:pre;overflow-x:auto;font-family:monospace;line-height:1.3"


def of_text(title: str, text: str) -> str:
    """A text under its title, which opens and closes it."""
    lines = text.splitlines()
    content = "\n".join(lines[:LINES])
    if len(lines) > LINES:
        content += f"\n... and {len(lines) - LINES} lines more"
    return (
        f"<details open><summary><b>{escape(title)}</b></summary>"
        f'<div style="{STYLE}">{escape(content)}</div></details>'
    )


def of_verdict(verdict: object) -> str:
    """A `Verdict` as `verax check` prints it."""
    return rendered("html", verdict)
