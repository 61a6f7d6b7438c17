"""The help of the verbs that are no systems. This module is light, so that `verifair --help` is quick."""

from __future__ import annotations

HELPS = {
    "check": """
Re-proves what `verifair` wrote: certificates of pba, certify, kmax, fgce, cec and cst, and the stores of certify --partition.
Every leaf is recomputed with rigorous arithmetic by code that imports neither the engine nor a solver; witnesses are evaluated
exactly. Exits with 1 if anything is rejected, is only a solver's claim, or is undecided (--partial accepts the statement about
what is decided), or if a file cannot be read.

Example: verifair check proof.json --model german.onnx --schema german.toml

Everything that an audit proved: verifair check report.files --model german.onnx --schema german.toml --partial
""",
    "train": """
Trains a ReLU network: agnostic, certifair (counterfactual penalty), fair-n (margin gap of the groups) or cec (the same reasons for
comparable people of different groups). Needs the extra `torch`.

Examples:
verifair train --data adult --method fair-n --sensitive sex --hidden 500,100 --out adult-fair.onnx
verifair train --data german --method cec --sensitive sex --lambda-cec 1 --out german-cec.onnx
""",
    "export": """
Writes the question of `verifair certify` for other verifiers, in the layout of VNN-COMP's benchmarks: VNN-LIB 2.0 with two
networks, and VNN-LIB 1.0 over a product network. A sat is a counterexample. If all files are unsat, the question is proved.

  verifair export --demo german --protected sex --relaxed --vnnlib german-sex

  verifair export german.onnx --schema german.toml --protected sex --box age=30:40 --enumerate job --relaxed --vnnlib german-jobs

VNN-LIB has real variables only. Whole numbers and categories that the box leaves open are enumerated (a query for each value) or,
with --relaxed, become intervals. Then unsat still proves, but a sat has to be confirmed. Each file says what it relaxes.

  verifair verify german-sex/2.0/vnnlib/0000-fall.vnnlib --network f=german-sex/2.0/onnx/network.onnx
""",
    "verify": """
Answers a VNN-LIB query (1.0 or 2.0) about ONNX networks: sat, unsat, unknown or timed-out on the first line, and below a sat
the assignment, which has been decided exactly over the stored weights. Everything else goes to standard error.

Example: verifair verify q.vnnlib --network f=model.onnx

For a competition: verifair verify property.vnnlib --network model.onnx --timeout 60 --results out.txt

It reads boxes of inputs and linear constraints on inputs and outputs with and, or. Each network has one input and one output
tensor. Proofs are about the real-valued function of the stored weights, so a query that declares float32 is refused without
--as-real.
""",
    "bench": """
Asks the same questions of every method and every solver that is installed, and compares answers, time and memory.

Example: verifair bench --out runs/bench

In a minute: verifair bench --quick --out runs/bench-quick

Some cases: verifair bench --cases 'pba-adult/*' --methods milp --solvers highs,scip --repeats 5 --out runs/milp
""",
    "audit": """
Runs every analysis that an audit file asks for, and writes one page: a summary that anybody can read, then each analysis with its
figures, counterexamples, and the command that re-checks its proofs. The page loads nothing from anywhere.

Example: verifair audit --demo german --out report.html

Your model: verifair audit --model credit.onnx --data credit.csv --target credit --sensitive sex --out credit.html

With files: verifair audit credit.audit.toml --out report.html

A file to begin with: verifair audit --write-example my.audit.toml
""",
    "reproduce": "Makes the papers' tables and figures again and shows ours beside the printed numbers.\n\nExample: "
    "verifair reproduce pba --table 3 --seeds 3\n\nWhat there is: verifair reproduce cst --list",
    "schema": "Drafts a schema of a model's inputs, or prints the JSON schemas of answers.",
    "doctor": "Lists backends, versions, licence limits and clashes; with --model, says how a network is read.\n\n"
    "Example: verifair doctor",
}
"""verb -> its help, with an example."""
