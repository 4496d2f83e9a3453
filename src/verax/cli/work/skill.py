"""What `verax skill` does: prints or installs the instructions for coding agents.

The originals stand in the repository's root, where agents look for them; a wheel has copies inside
of the package.
"""

from __future__ import annotations

from pathlib import Path

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.cli.console import can_write, output, write_json

SKILL, AGENTS = Path("skills", "verify-numerics", "SKILL.md"), Path("AGENTS.md")
"""Where they stand in a repository."""
BEGIN, END = "<!-- verax: begin -->", "<!-- verax: end -->"
"""Lines around the section of AGENTS.md that is for every project."""
TITLE = "# For coding agents\n\n"
"""Opens an AGENTS.md that is made."""
PACKAGE = Path(__file__).parents[2]


def perform(*, install: Path | None, force: bool, json: Path | None) -> None:
    """Carry out the command with the options of `verax.cli.skill`."""
    can_write(json)
    skill, agents = originals()
    if install is None:
        if force:
            raise UsageError("--force is given and nothing is installed", next_step="add --install")
        output.print(skill, markup=False, highlight=False, soft_wrap=True)
        write_json(json, "verax.skill/1", {"skill": skill, "agents": agents})
        return
    if not install.is_dir():
        raise UsageError(
            "there is no such folder to install into",
            place=str(install),
            next_step="make it, or name the root of your repository",
        )
    texts = {
        install / SKILL: _own_file(install / SKILL, skill, force),
        install / AGENTS: _with_section(install / AGENTS, section_of(agents), force),
    }
    states = {}
    for path, text in texts.items():  # nothing is written unless all of it can be
        states[str(path)] = "written" if text is not None else "unchanged"
        if text is not None:
            _write(path, text)
        output.print(f"{states[str(path)]}: {path}", markup=False, highlight=False, soft_wrap=True)
    write_json(json, "verax.skill/1", {"files": states})


def originals() -> tuple[str, str]:
    """The texts of SKILL.md and AGENTS.md, of a wheel or of a checkout."""
    inside = PACKAGE / "skills"
    skill, agents = (
        (PACKAGE / SKILL, inside / AGENTS)
        if inside.is_dir()
        else (PACKAGE.parents[1] / SKILL, PACKAGE.parents[1] / AGENTS)
    )
    try:
        return skill.read_text(encoding="utf-8"), agents.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"this installation of Verax has no instructions for agents ({error.strerror})",
            place=str(error.filename),
            next_step="install Verax again",
        ) from error


def section_of(agents: str) -> str:
    """The section for every project, its lines BEGIN and END included."""
    return f"{BEGIN}{agents.partition(BEGIN)[2].partition(END)[0]}{END}\n"


def _existing(path: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"the file is there and cannot be read ({reason})",
            place=str(path),
            next_step="move it away",
        ) from error


def _own_file(path: Path, text: str, force: bool) -> str | None:
    """The text to write into a file that is ours; None if it stands there already."""
    existing = _existing(path)
    if existing == text:
        return None
    if existing is not None and not force:
        raise UsageError(
            "the file is there already and says something else",
            place=str(path),
            next_step="--force replaces it",
        )
    return text


def _with_section(path: Path, section: str, force: bool) -> str | None:
    """The text of an AGENTS.md with our section in it; None if it has it already."""
    existing = _existing(path)
    if existing is None:
        return TITLE + section
    if section in existing:
        return None
    if (existing.count(BEGIN), existing.count(END)) not in ((0, 0), (1, 1)):
        raise UsageError(
            f"the section between {BEGIN} and {END} has no end, or there are several",
            place=str(path),
            next_step="remove it by hand",
        )
    has_section = BEGIN in existing
    if not force:
        raise UsageError(
            "the file is there already and "
            + ("has another section of Verax" if has_section else "has no section of Verax"),
            place=str(path),
            next_step="--force puts the section in and leaves the rest of the file as it is",
        )
    if has_section:
        before, _, remainder = existing.partition(BEGIN)
        return before + section.rstrip("\n") + remainder.partition(END)[2]
    return f"{existing.rstrip()}\n\n{section}" if existing.strip() else TITLE + section


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder cannot be made ({error.strerror})",
            place=str(path.parent),
            next_step="move away what stands in its place",
        ) from error
    with atomic_write(path) as stream:
        stream.write(text.encode())
