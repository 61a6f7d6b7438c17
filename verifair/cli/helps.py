"""The help of the verbs that are no systems. This module is light, so that `verifair --help` is quick."""

from __future__ import annotations

HELPS = {
    "check": """
Re-proves what `verifair` wrote: certificates of pba, certify, kmax, fgce, cec and cst, and the stores of certify --partition.
Every leaf is recomputed with rigorous arithmetic by code that imports neither the engine nor a solver; witnesses are evaluated
exactly. Exits with 1 when anything in the file is rejected or is only a solver's claim, and when something that was asked is not
decided: --partial accepts the statement about what is.

  verifair check proof.json --model german.onnx --schema german.toml

  verifair check adult.sqlite --model adult.onnx --schema adult.toml
""",
    "train": """
Trains a ReLU network: agnostic, certifair (counterfactual penalty), fair-n (margin gap of the groups) or cec (the same reasons for
comparable people of different groups). Needs the extra `torch`.

Examples:
verifair train --data adult --method fair-n --sensitive sex --hidden 500,100 --out adult-fair.onnx
verifair train --data german --method cec --sensitive sex --lambda-cec 1 --out german-cec.onnx
""",
    "export": """
Writes the question of `verifair certify` for other verifiers: VNN-LIB 2.0 with two networks, and VNN-LIB 1.0 over a product
network, laid out as VNN-COMP has its benchmarks. A sat is a counterexample; all files unsat are a proof.

  verifair export --demo german --protected sex --relaxed --vnnlib german-sex

  verifair export german.onnx --schema german.toml --protected sex --box age=30:40 --enumerate job --relaxed --vnnlib german-jobs

VNN-LIB has real variables only. Whole numbers and categories that the box leaves open are either enumerated (a query for each
value) or, with --relaxed, intervals: then unsat still proves, but a sat has to be confirmed. Each file says what it relaxes.

  verifair verify german-sex/2.0/vnnlib/0000-fall.vnnlib --network f=german-sex/2.0/onnx/network.onnx
""",
    "verify": """
Answers a VNN-LIB query (1.0 or 2.0) about ONNX networks: sat, unsat, unknown or timed-out on the first line, and below a sat
the assignment, which has been decided exactly over the stored weights. Everything else goes to standard error.

  verifair verify q.vnnlib --network f=model.onnx

  verifair verify property.vnnlib --network model.onnx --timeout 60 --results out.txt

What is read: boxes of inputs, linear constraints on inputs and outputs with and, or; one network, or several with one input and one
output tensor each (equal-to, or other models). Proofs are about the real-valued function of the stored weights: a query that
declares float32 is refused unless --as-real says that this is what is meant.
""",
    "bench": """
Asks the same questions of every method and every solver that is installed, and compares answers, time and memory.

Example: verifair bench --out runs/bench

A taste: verifair bench --quick --out runs/bench-quick

Some: verifair bench --cases 'pba-adult/*' --methods milp --solvers highs,scip --repeats 5 --out runs/milp
""",
    "audit": """
Runs every analysis that an audit file asks for, and writes one page: a summary that anybody can read, then each analysis with its
figures, counterexamples, and the command that re-checks its proofs. The page loads nothing from anywhere.

Example: verifair audit --demo german --out report.html

Your model: verifair audit --model credit.onnx --data credit.csv --target credit --sensitive sex --out credit.html

With files: verifair audit credit.audit.toml --out report.html

A file to begin with: verifair audit --write-example my.audit.toml
""",
    "reproduce": "Makes the papers' tables and figures again, ours beside the printed numbers.\n\nExample: verifair reproduce pba "
    "--table 3 --seeds 3\n\nWhat there is: verifair reproduce cst --list",
    "schema": "Drafts a schema of a network's inputs; prints the JSON schemas of answers.",
    "doctor": "Lists backends, versions, limits, clashes; with --model how a network is read.\n\nExample: verifair doctor",
}
"""verb -> its help, with an example."""
