"""An example of an audit file, to start from."""

EXAMPLE = """\
# What to audit, and how. Paths are relative to this file and stay in its folder (wider: verifair audit --root FOLDER).
# Run it with: verifair audit THIS_FILE --out report.html
title = "Our credit model"
seed = 0                        # of every random draw
effort = 150                    # seconds of work on an idle core for the audit; each analysis gets an equal share of what is left
timeout = 3600                  # seconds by the clock after which the rest is left out; the page says what
# what_if = false               # the page does not hold the model, and answers for nobody else

[model]
file = "model.onnx"

[schema]
file = "schema.toml"            # a first draft: verifair schema infer table.csv --target LABEL

[data]
file = "table.csv"              # rows of raw features and the label; without it some analyses are skipped
outside = "error"               # or "drop": leave out rows outside the schema's ranges or categories
missing = "error"               # or "drop", "most-frequent": leave out rows with missing values, or fill these in

[sensitive]
features = ["sex"]              # without this section: the features that the schema declares protected

# Each section below is one analysis; delete those you do not want. `protected = [...]` and `effort = ...` may stand in each.

[analyses.pba]                  # persistent bias of rows, proved
delta = [1]                     # neighbourhoods, in the schema's units
# rows = 1000                   # use this number of rows only, drawn with the seed

[analyses.certify]              # anybody treated differently? proved, or an exact counterexample
# epsilon = 0.05                # probabilities move by no more than this; without it: no decision flips
# box = { age = [30, 40] }      # only there
# partition = 10                # also in parts of this number of values
# share = true                  # also how many of all possible people are decided alike, from both sides
maximise = true                 # the largest change of the probability, from both sides

[analyses.kmax]                 # how many different outcomes one person can get
buckets = 20

[analyses.fgce]                 # what people refused have to change, by group
k = 20                          # examples a group, at most
robust = [1]                    # prove that they keep the favourable decision within 1 unit

[analyses.cec]                  # comparable people, comparable reasons? needs features with merit = true, and a label
certify = 1                     # prove it for everybody within 1 unit of both

# [analyses.cst]                # situation testing under a causal model that you state: see docs/questions/cst.md
# causal = "causal.toml"
"""
