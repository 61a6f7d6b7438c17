"""The shape that all systems share, and the list of systems.

A system is a folder:

    settings.py     Settings (all options of the question) and SYSTEM; imports pydantic alone
    solve.py        solve(settings, subject, work) -> Result
                    (read(inputs, settings) -> subject, if the subject is not a network, schema and table)
    result.py       Result: the answer. It is the JSON; tables, pictures and sentences are made from it
                    ANSWERS: name of a JSON schema -> its type, such as {verb: Result}
    tables.py       show(result, console): the screen, and `text_file` of --out; tables(result): name -> DataFrame, its CSV files
                    (text(result, console): the text file, if it differs; write(result, folder): other files;
                    it returns a note on files left out, or None)
    plots.py        plots(result): name -> draw(path), the pictures of --out; plot(result, path): the picture of --plot
    statements.py   section(settings, subject, work) -> Section: the audit's section (if `about` is set)
                    (sources(settings, subject) -> list[Source]: files beside model, schema and table that the settings name)

From these come the command with its options and `--json`, the JSON schema, the section of the audit file and of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from verifair.systems.results.result import part
from verifair.systems.settings import Inputs, Settings


@dataclass(frozen=True, kw_only=True)
class About:
    """The audit's heading of an analysis, also if it did not run.   source: the paper."""

    title: str
    question: str
    source: str


@dataclass(frozen=True, kw_only=True)
class System:
    """One paper's question.

    verb: of the command line.   help: of the command, with an example.   settings: its question.   inputs: the type of its inputs.
    run: names of `Run` fields that it takes as options.   defaults: of inputs and run options, if they are not the common ones.
    helps: option -> help, if the common one does not say enough.   about: None keeps it out of the audit.
    audit_defaults: of settings, in an audit file.   keys: names of settings that an audit file may hold; empty: all.
    required: those that it must hold.
    """

    verb: str
    help: str
    settings: type[Settings]
    inputs: type[Settings] = Inputs
    run: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)
    text_file: str = ""
    about: About | None = None
    audit_defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    @property
    def heading(self) -> dict[str, Any]:
        """Return the heading of the page's section: key, title, question and source."""
        assert self.about is not None, f"{self.verb} is no analysis of the audit"
        return {"key": self.verb, **vars(self.about)}

    @property
    def package(self) -> str:
        """Return the system's folder, as a package."""
        return self.settings.__module__.rpartition(".")[0]

    def part(self, module: str, name: str) -> Any:
        """Import one of the folder's modules and return a name of it."""
        return getattr(import_module(f"{self.package}.{module}"), name)

    def optional(self, module: str, name: str) -> Callable[..., Any] | None:
        """Return the same, or None if there is no such module or name."""
        function: Callable[..., Any] | None = part(self.package, module, name)
        return function


SYSTEMS: dict[str, str] = {
    "pba": "verifair.systems.pba",
    "certify": "verifair.systems.hyfair.certify",
    "kmax": "verifair.systems.hyfair.kmax",
    "cec": "verifair.systems.cec",
    "explain": "verifair.systems.hyfair.explain",
    "guard": "verifair.systems.hyfair.guard",
    "fgce": "verifair.systems.fgce",
    "cst": "verifair.systems.cst",
}
"""verb -> the system's folder. A new system is one more folder and one more line here."""


def system(verb: str) -> System:
    """Return the system of a verb."""
    result: System = import_module(f"{SYSTEMS[verb]}.settings").SYSTEM
    return result
