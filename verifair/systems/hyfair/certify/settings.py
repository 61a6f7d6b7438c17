"""The settings of certify."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from verifair.systems.hyfair.pairs import FairnessSettings
from verifair.systems.settings import Arithmetic, Inputs, Method, Run, no_claims
from verifair.systems.system import About, System


class CertifySettings(FairnessSettings):
    """One question about individual fairness: a box, several boxes, all parts, counterexamples, the largest gap, or the share."""

    belongs: ClassVar = {
        "logit": (("maximise", True),), "tolerance": (("maximise", True), ("share", True)),
        **dict.fromkeys(("jobs", "cluster"), (("partition", None), ("share", True), ("maximise", True))),
        **dict.fromkeys(("store", "resume", "data", "plot"), (("partition", None), ("share", True))),
    }
    targeted: tuple[str, ...] = ()
    """A sub-population, feature=low:high,feature=value; repeat."""
    maximise: bool = False
    """Bound the largest probability gap from below and above."""
    logit: bool = False
    """Maximise the gap between log-odds instead."""
    tolerance: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Stop when the two bounds are this close (default: 1e-4 with --maximise, at least 1e-6; 1e-3 with --share)."""
    share: bool = False
    """Bound the share of all possible people who are treated alike from below and above."""
    partition: Annotated[int | None, Field(ge=2)] = None
    """Cut every feature into blocks of this number of values, and decide each part of the domain."""
    enumerate: Annotated[int | None, Field(ge=1)] = None
    """List at most this number of people who are treated differently."""
    arithmetic: Arithmetic = "real"
    """real, or float32: proofs must hold for every float32 evaluation, in any order of summation."""
    method: Method = "auto"
    """auto (decides), bnb, lp (the paper's triangle LP), milp, smt."""
    solver: str | None = None
    """Backend of lp, milp and smt; see `verifair doctor`."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the option whose file is a folder: the certificate of several sub-populations, one file each."""
        return ("certificate",) if self.targeted else ()

    def check_options(self, inputs: Inputs, run: Run) -> None:
        """Raise ValueError if two questions are asked at once, and for options of another question."""
        modes = [name for name in ("targeted", "maximise", "partition", "enumerate", "share") if getattr(self, name)]
        if len(modes) > 1:
            raise ValueError(f"--{modes[0]} and --{modes[1]} are different questions: ask them one at a time")
        mode = modes[0] if modes else ""
        no_claims(self.arithmetic, self.method, self.solver)
        if mode in ("maximise", "enumerate", "share") and self.arithmetic == "float32":
            raise ValueError(f"--{mode} is about the real-valued function only: drop --arithmetic float32")
        self.check_flip()
        yes_or_no = {"flip": self.flip, "epsilon": self.epsilon is not None, "signs": "signs" in self.model_fields_set}
        if mode == "maximise" and (any(yes_or_no.values()) or run.exit_verdict):
            option = next((f"--{name}" for name, is_given in yes_or_no.items() if is_given), "--exit-verdict")
            raise ValueError(f"--maximise asks how large the gap can be, which is no yes or no: drop {option}")
        if mode == "maximise" and self.tolerance is not None and self.tolerance < 1e-6:
            low = f"--tolerance {self.tolerance:g}: expected a number of at least 1e-06 and below 1, such as 0.0001"
            raise ValueError(f"{low} (bounds of --maximise are rounded outwards)")
        if mode == "share" and (self.epsilon is not None or self.relax or run.exit_verdict):
            option = "--epsilon" if self.epsilon is not None else "--relax" if self.relax else "--exit-verdict"
            raise ValueError(f"--share asks how many people's decisions never flip, all else equal: drop {option}")
        if mode in ("maximise", "partition", "share") and (self.method != "auto" or self.solver is not None):
            option = "--solver" if self.solver is not None else "--method"
            raise ValueError(f"--{mode} always works by branch-and-bound, whose proofs can be checked: drop {option}")
        if mode in ("partition", "share") and run.certificate is not None:
            raise ValueError(f"--{mode} keeps its proofs in the store, which `verifair check` re-proves: drop --certificate")
        if mode == "enumerate" and self.relax:
            raise ValueError("--enumerate counts people by what they share with their partner, which --relax leaves open: drop one")
        if inputs.data is not None and self.relax:
            raise ValueError("--data cannot be weighed with --relax: a row's partner may lie in another part; drop one of the two")


SYSTEM = System(
    verb="certify",
    help="""
Proves that no possible person is treated differently when protected values change, or shows an exact counterexample. Possible
people are all rows that the schema allows; --box narrows them.

The whole domain of a shipped network (--demo works in every example below, in place of the files):

  verifair certify --demo german --protected sex

In a box: does any decision flip, or (--epsilon) does any probability move by more than that?

  verifair certify german.onnx --schema german.toml --protected sex --box duration=6:24 --certificate proof.json

  verifair certify adult.onnx --schema adult.toml --protected race --epsilon 0.05 --relax age=5

A decision is positive where logit > 0 (two logits: where the positive class has the larger one). By Fairify's rule a logit of
exactly 0 counts on neither side:

  verifair certify adult.onnx --schema adult.toml --protected race --signs strict

Several sub-populations, a verdict and a certificate for each:

  verifair certify adult.onnx --schema adult.toml --protected race --targeted "age=30:35" --targeted "education=9:10,sex=Male"

Which people are decided differently? Up to five hundred of them:

  verifair certify german.onnx --schema german.toml --protected sex --box duration=6:24 --enumerate 500 --out found

How far apart can the probabilities be at most?

  verifair certify german.onnx --schema german.toml --protected sex --maximise --tolerance 1e-3 --certificate bound.json

The whole domain in parts: in which share of it is everybody treated alike? (Ctrl-C keeps finished work; --resume continues)

  verifair certify adult.onnx --schema adult.toml --protected sex --partition 10 --store adult.sqlite --plot share.png

Which share of all possible people is treated alike? (Ctrl-C keeps finished work; --resume continues)

  verifair certify adult.onnx --schema adult.toml --protected sex --share --tolerance 0.01 --store share.json.gz
""",
    settings=CertifySettings,
    run=(
        "out", "store", "resume", "jobs", "cluster", "plot", "certificate", "timeout", "nodes", "seed", "json_file", "exit_verdict",
    ),
    defaults={"timeout": 60.0},
    helps={
        "data": "Table: also show which share of its rows lies in certified parts (--share: is treated alike).",
        "store": "File of the verdicts and proofs of --partition or --share (default: named after the question).",
        "plot": "Draw the certified share (--share: its bounds over time; PNG, PDF or SVG).",
        "certificate": "Write the proof here (.json, .json.gz; with --targeted a folder).",
    },
    about=About(
        title="Individual fairness",
        question="Would the same person be treated differently with another sensitive value?",
        source="HyFair: Uncovering Discrimination Clusters (Akash and others); partitions as in Fairify (Biswas, Rajan)",
    ),
    audit_defaults={"maximise": True, "tolerance": 1e-3},
    keys=("protected", "epsilon", "signs", "box", "partition", "share", "maximise", "tolerance", "enumerate"),
)
