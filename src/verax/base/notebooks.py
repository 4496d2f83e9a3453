"""What notebooks show of networks and programs: HTML of text, nothing of it active.

Records are shown by what renders their reports (see `printing`).
"""

from __future__ import annotations

from html import escape

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
