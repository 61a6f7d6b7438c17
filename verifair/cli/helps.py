"""The help of verbs that are not systems. This module imports little, so that `verifair --help` is quick."""

from __future__ import annotations

HELPS = {
    "check": """
Checks the proofs in certificates (of pba, certify, kmax, guard, fgce, cec and cst) and in stores of certify --partition and
--share. Every step is recomputed with rigorous arithmetic by code that imports neither the search nor a solver; witnesses are
evaluated exactly. Exits with 1 if anything is rejected, only a solver's claim, or undecided, or if a file cannot be read. With
--partial it accepts files in which something is undecided, and states what is proved about the rest.

Example: verifair check proof.json --model german.onnx --schema german.toml

Everything that an audit proved: verifair check report.files --model german.onnx --schema german.toml --partial
""",
    "train": """
Trains a ReLU network by one of four methods: agnostic (no fairness term), certifair (counterfactual penalty), fair-n (margin gap of
the groups) or cec (the same reasons for comparable people of different groups). Needs the extra `torch`.

Example: verifair train --data adult --method fair-n --sensitive sex --hidden 500,100 --out adult-fair.onnx

Consistent reasons: verifair train --data german --method cec --sensitive sex --lambda-cec 1 --out german-cec.onnx
""",
    "export": """
Writes the question of `verifair certify` for other verifiers, in the layout of VNN-COMP's benchmarks: VNN-LIB 2.0 with two
networks, and VNN-LIB 1.0 over a product network. An answer sat is a counterexample. If all files are unsat, fairness is proved.

  verifair export --demo german --protected sex --relaxed --vnnlib german-sex

  verifair export german.onnx --schema german.toml --protected sex --box duration=6:24 --enumerate job --relaxed --vnnlib by-job

VNN-LIB has real variables only. Whole numbers and categories that the box leaves open are enumerated (a query for each value) or,
with --relaxed, become intervals. Then unsat is still a proof, but sat has to be confirmed. Each file says what it relaxes.

  verifair verify german-sex/2.0/vnnlib/0000-fall.vnnlib --network f=german-sex/2.0/onnx/network.onnx
""",
    "verify": """
Answers a VNN-LIB query (1.0 or 2.0) about ONNX networks. The first line of the output is sat, unsat, unknown or timed-out; after
sat follows the assignment, which was checked exactly over the stored weights. Everything else goes to standard error.

Example: verifair verify q.vnnlib --network f=model.onnx

For a competition: verifair verify property.vnnlib --network model.onnx --timeout 60 --results out.txt

A query may have boxes of inputs, and linear constraints on inputs and outputs, joined by and, or. Each network has one input
tensor and one output tensor. Proofs are about the real-valued function of the stored weights, so a query that declares float32
is refused without --as-real.
""",
    "bench": """
Asks the same questions of every method and every solver that is installed, and compares answers, time and memory.

Example: verifair bench --out runs/bench

In a minute: verifair bench --quick --out runs/bench-quick

Some cases: verifair bench --cases 'pba-adult/*' --methods milp --solvers highs,scip --repeats 5 --out runs/milp
""",
    "audit": """
Runs all analyses of a model and writes one page (HTML): a summary that anybody can read, then each analysis with its figures, its
counterexamples, and the command that checks its proofs. The page works without a network connection.

Example: verifair audit --demo german --out report.html

Your model: verifair audit --model credit.onnx --data credit.csv --target credit --sensitive sex --out credit.html

With files: verifair audit credit.audit.toml --out report.html

An example of an audit file: verifair audit --write-example my.audit.toml
""",
    "reproduce": "Computes the papers' tables and figures again, and shows the results beside the printed numbers.\n\nExample: "
    "verifair reproduce pba --table 3 --seeds 3\n\nA list of tables and figures: verifair reproduce cst --list",
    "schema": "Drafts the schema of a model's inputs (infer), or prints the JSON schemas of answers (json).",
    "doctor": "Lists solvers, versions, licence limits and conflicts; with --model, shows how a model is read.\n\n"
    "Example: verifair doctor",
}
"""verb -> its help, with an example."""
