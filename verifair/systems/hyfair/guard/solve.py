"""Run `guard`: write the guarded and the retrained network, and measure both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from encoders.arrays import Array, Integers
from encoders.errors import ModelError
from encoders.model import Model
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from verifair.datasets import Dataset
from verifair.engine.gap.maximise import MaximumGap
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError
from verifair.files import whole
from verifair.interrupts import keeping
from verifair.schema.schema import Schema
from verifair.systems import subject as subjects
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.refusals import earlier, guarded_schema, snapped
from verifair.systems.hyfair.explain.rounds import with_network
from verifair.systems.hyfair.explain.rules import Rule, refused
from verifair.systems.hyfair.explain.rules_file import RuleFile
from verifair.systems.hyfair.explain.solve import legal_rows, names
from verifair.systems.hyfair.guard import guardrail, retraining
from verifair.systems.hyfair.guard.effects import Effect, EffectData, effect
from verifair.systems.hyfair.guard.result import CertifiedGap, GuardResult, InstanceCounts
from verifair.systems.hyfair.guard.settings import GuardSettings
from verifair.systems.hyfair.guard.tighten import Tightened, tighten
from verifair.systems.hyfair.search.space import Space
from verifair.systems.results.verdicts import Gap
from verifair.systems.settings import Inputs
from verifair.systems.subject import Subject
from verifair.systems.work import Work

EDGE_ROWS = 50


def read(inputs: Inputs, settings: GuardSettings) -> Subject:
    """Read the model, its schema and the table. Raises ModelError for a network that is guarded already."""
    try:
        return subjects.read(inputs, settings.protected)
    except ModelError as error:
        if inputs.model is not None and guardrail.is_guarded(inputs.model):
            message = "is guarded already; pass the model itself and the guarded schema: the new guardrail keeps the old rules"
            raise ModelError(inputs.model, message) from error
        raise


def solve(settings: GuardSettings, subject: Subject, work: Work) -> GuardResult:
    """Write the guarded network, and the retrained one, and measure both. Raises QueryError, DataError, Interrupted."""
    schema, dataset, out = subject.schema, subject.table, settings.out
    if settings.retrain is not None and (dataset is None or schema.label not in dataset.frame.columns):
        raise QueryError("--retrain needs --data with the schema's label column, to train on")
    if settings.retrain is not None:  # before anything is written
        if subject.network.of_trees:
            raise ModelError(
                subject.model,
                f"is {subject.network.whole.kind}, and --retrain trains networks on by gradients, which trees do not have; drop "
                "--retrain, or refit the estimator that it was exported from and guard the new file",
            )
        retraining.weights_of(subject.network.whole.layered("guard --retrain"))
    rule_file = rules_file.EMPTY_FILE if settings.rules is None else rules_file.load(settings.rules, schema)
    rows, labels, dataset = _held_out(dataset, settings.outside, work)
    query = _query(rule_file, schema, subject.network, settings)
    rules_file.check_protected(settings.rules, rule_file.rules, query.protected, schema)
    rules, before, tightened = snapped(rule_file.rules, schema), None, None
    if settings.target is not None:
        with keeping("nothing was written"):
            before, tightened = _tighten(query, dataset, settings.target, rules, work)
        rules = tightened.rules
    table = None if dataset is None else schema.raw(dataset.frame)
    schema_path = _write(subject, out, rules, table, work.seed)
    if tightened is not None:
        _save_rules(tightened, query, out.with_suffix(".rules.json"))
        work.save_certificate(tightened.certificate)
    networks, instances, written_files = [("original", query)], None, f"{out} and {schema_path} are written"
    if settings.retrain is not None and dataset is not None:
        with _naming_files(written_files), work.bar("epochs") as progress:
            instances = retraining.retrain(
                Space.of(query), dataset, rule_file.clusters, settings.retrain, epochs=settings.epochs,
                learning_rate=settings.learning_rate, seed=work.seed, progress=progress,
            )
        networks.append(("retrained", with_network(query, read_onnx(settings.retrain))))
    limits = Budget(seconds=max(work.left, 0.1) / (2 * len(networks)), nodes=None, seed=work.seed)
    data = EffectData(
        data=rows, labels=labels, clusters=rule_file.clusters, iterations=settings.iterations, budget=limits, table=table,
    )
    with keeping(f"{written_files}; what they change was not measured"), _naming_files(written_files):
        effects = _effects(networks, rules, data, work)
    return GuardResult(
        guarded=str(out), schema_file=str(schema_path), rules=[rule.words(schema) for rule in rules],
        certified=None if tightened is None else CertifiedGap(
            upper=tightened.target, before=Gap.model_validate(before), boxes=tightened.boxes, domain=tightened.domain,
            open=tightened.open,
        ),
        retrained=str(settings.retrain) if settings.retrain else None,
        instances=None if instances is None else InstanceCounts(people=instances.people, rows=len(instances.raw)),
        effects=effects, seconds=work.seconds, seed=work.seed, query=query, given=rule_file, tightened=tightened, raw=rows,
        earlier=len(earlier(schema)), model=subject.model, certificate=work.certificate,
    )


@contextmanager
def _naming_files(written_files: str) -> Iterator[None]:
    """Add to an error the files that are written already."""
    try:
        yield
    except (DataError, QueryError) as error:
        raise type(error)(f"{error}; {written_files}") from error


def _effects(networks: Sequence[tuple[str, KDiscrimination]], rules: Sequence[Rule], data: EffectData, work: Work) -> list[Effect]:
    """Return the effect of every network, without and with the rules."""
    effects: list[Effect] = []
    with work.bar("interventions") as progress:
        for name, query in networks:
            for suffix, active_rules in (("", ()), (" + rules", rules)):
                effects.append(effect(name + suffix, query, active_rules, data))
                progress(len(effects), 2 * len(networks))
    return effects


def _tighten(
    query: KDiscrimination, dataset: Dataset | None, target: float, rules: tuple[Rule, ...], work: Work
) -> tuple[MaximumGap, Tightened]:
    if dataset is None:
        raise QueryError("--target needs --data: the rules are to spare real people")
    table = dataset.train if query.schema.label in dataset.frame.columns else dataset.frame
    seconds = (work.deadline - work.started) / 2
    with work.bar("proofs, share of the time") as progress:
        return tighten(query, query.schema.raw(table), target, rules=rules, seconds=seconds, seed=work.seed, progress=progress)


def _save_rules(tightened: Tightened, query: KDiscrimination, path: Path) -> None:
    """Write the rules to a file, for reading and reuse."""
    schema = query.schema
    rules = [{"when": rules_file.when(rule, schema), "words": rule.words(schema)} for rule in tightened.rules]
    about = {"model_sha256": query.model.source_sha256, "query": {"protected": list(query.protected)}}
    rules_file.save(path, {"kind": rules_file.KIND, **about, "rules": rules})


def _held_out(
    dataset: Dataset | None, outside: str, work: Work
) -> tuple[Array | None, Integers | None, Dataset | None]:
    """Return held-out rows and labels, on which retraining does not train."""
    if dataset is None:
        return None, None, None
    rows, legal = legal_rows(dataset, outside, work)
    if legal.schema.label is None or legal.schema.label not in legal.frame.columns:
        return rows, None, legal
    return legal.schema.raw(legal.test), legal.schema.labels(legal.test), legal


def _write(subject: Subject, out: Path, rules: Sequence[Rule], rows: Array | None, seed: int) -> Path:
    """Write the guarded network and its schema after checking that wrapper and raw boxes agree; return the schema's path.

    rows: of the whole table, since rules may refuse all held-out rows.
    """
    path, schema = subject.model, subject.schema
    if out.resolve() == path.resolve():
        raise DataError(f"{out}: is the network itself; give the guarded one another name")
    guarded = guarded_schema(schema, rules)
    if rows is not None and refused(rules, rows).all():
        raise DataError(f"the rules refuse all {len(rows)} rows of the data: the guarded network would answer nobody there")
    wrapped = guardrail.guard(path, rules, schema)
    edges = guardrail.edge_rows(rules, schema, EDGE_ROWS, np.random.default_rng(seed))
    checked = edges if rows is None else np.concatenate([edges, rows])
    guardrail.check_agreement(out, wrapped, rules, schema, checked, subject.network.feeds)
    out.parent.mkdir(parents=True, exist_ok=True)
    schema_path = out.with_suffix(".toml")
    guarded.save(schema_path)
    with whole(out) as temporary:
        onnx.save(wrapped, temporary)
    return schema_path


def _query(rule_file: RuleFile, schema: Schema, network: Model, settings: GuardSettings) -> KDiscrimination:
    """Return the query that the rules were found by, with changes from the command line."""
    options: dict[str, Any] = {"box": settings.box, "values": settings.raw_values(schema)}
    arguments: dict[str, Any] = {key: rule_file.query[key] for key in ("buckets", "box", "values") if key in rule_file.query}
    arguments |= {key: value for key, value in options.items() if value}
    return KDiscrimination(
        model=network, schema=schema, protected=names(schema, settings.protected or rule_file.query.get("protected")), **arguments
    )
