"""Run CST: read table, model and decider, test every intervention, then robustness and proofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from encoders.onnx.reader import read_model
from verifair import datasets
from verifair.datasets.stream import Stream
from verifair.errors import DataError, QueryError, SchemaError
from verifair.interrupts import Interrupted, OutOfTime
from verifair.schema.schema import Schema
from verifair.schema.spelling import nearest
from verifair.systems.cst.case import Case, place_of
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.file import CausalFile
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import Decider, LinearRule, NetworkDecider, Recorded, counterfactually, reads
from verifair.systems.cst.estimator import SituationTesting, chance, redraws
from verifair.systems.cst.findings import DrawnCases, Intervention
from verifair.systems.cst.groups import in_words
from verifair.systems.cst.result import CertifiedDecisions, ClaimRobustness, CstQuery, CstResult
from verifair.systems.cst.robustness.certified import certify_counterfactuals
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.settings import OF_PRESET, CstInputs, CstSettings, Situation
from verifair.systems.results.files import file_name
from verifair.systems.stores import Parts
from verifair.systems.subject import model_options
from verifair.systems.work import Work


@dataclass(frozen=True, kw_only=True, eq=False)
class CstSubject:
    """frame: the table.   file: the causal file, found at `path`.   decider: makes the decisions.   words: the source of the rows.

    options: those that name the network and its schema to `verifair check`, empty where no network decides.
    prefix: the start of a setting's name as the user wrote it, for errors.
    """

    frame: Any
    file: CausalFile
    path: Path
    decider: Decider
    words: str
    options: str
    prefix: str = "--"

    @property
    def network(self) -> NetworkDecider | None:
        """The network that decides on counterfactuals; None if no network does."""
        decider = counterfactually(self.decider)
        return decider if isinstance(decider, NetworkDecider) else None


def read(inputs: CstInputs, settings: CstSettings) -> CstSubject:
    """Read the files that the options name. Raises QueryError for missing options, DataError and SchemaError for files."""
    demo, model, schema = inputs.demo, inputs.model, inputs.schema_file
    if demo is not None:
        dataset, shipped = datasets.load(demo, inputs.data), datasets.causal_path(demo)
        path = settings.causal or shipped
        file = causal_file.load(path)
        undecided = not file.decision.model_fields_set  # the user's own graph, without a [decision]: the demo's decider stands
        decider = decider_of(causal_file.load(shipped), shipped) if undecided else decider_of(file, path)
        options = f"--demo {demo}" if undecided or path == shipped else _options(file)
        return CstSubject(frame=dataset.frame, file=file, path=path, decider=decider, words=f"demo {demo}", options=options)
    if settings.causal is None:
        raise QueryError(
            "cst needs a causal model, --causal FILE.toml: who causes what, in [[causal.node]] sections; try --demo loan, or see "
            "docs/questions/cst.md"
        )
    if inputs.data is None:
        raise QueryError("cst needs rows: pass --data TABLE, or try a shipped example with --demo loan")
    if (model is None) != (schema is None):
        raise QueryError("MODEL and --schema belong together: a network, and what it takes; pass both, or neither")
    network = None
    if model is not None and schema is not None:
        network = NetworkDecider(model=read_model(model), schema=Schema.load(schema))
    file = causal_file.load(settings.causal)
    decider = network or decider_of(file, settings.causal)
    recorded = [] if file.decision.column is None else [file.decision.column]
    columns = [*(node.name for node in file.nodes), *reads(decider), *recorded]
    facts = [*recorded, *settings.do, *file.situation.do]
    data = Stream.of(inputs.data)
    if isinstance(network_decider := counterfactually(decider), NetworkDecider):
        data = data.changed(network_decider.schema.with_missing)
    data, settled = data.settled(inputs.missing, columns, facts=facts)
    return CstSubject(
        frame=data.stored, file=file, path=settings.causal, decider=decider, words=f"{inputs.data}{settled}",
        options=_options(file) if model is None else model_options(model, schema),
    )


def _options(file: CausalFile) -> str:
    return "" if file.network_path is None else model_options(file.network_path, file.schema_path)


def decider_of(file: CausalFile, path: Path) -> Decider:
    """Return the decider that a causal file describes.

    Recorded decisions of the file's column apply to the rows; a rule or network that is also named decides on counterfactuals.
    """
    decision = file.decision
    decider: Decider | None = None
    if decision.weights is not None:
        decider = LinearRule(weights=decision.weights, above=decision.above, at_least=decision.at_least)
    elif file.network_path is not None and file.schema_path is not None:
        decider = NetworkDecider(model=read_model(file.network_path), schema=Schema.load(file.schema_path), good=decision.good)
    if decision.column is not None:
        return Recorded(column=decision.column, positive=decision.positive, counterfactual=decider)
    if decider is None:
        raise SchemaError(
            f"{path}: nobody decides; name in [decision] a column with its positive value, weights with above or at_least, or "
            "network and schema; or pass MODEL and --schema"
        )
    return decider


def testing(settings: CstSettings, subject: CstSubject, work: Work) -> SituationTesting:
    """Return the fitted test that the settings describe. Raises QueryError, DataError, SchemaError."""
    file, given = subject.file.situation, settings.model_fields_set & set(Situation.model_fields)
    parameters: dict[str, Any] = {name: getattr(file, name) for name in file.model_fields_set}
    parameters |= {name: getattr(settings, name) for name in given}
    if parameters.get("preset") is not None:
        explicit = given if "preset" in given else set(parameters)  # the command line takes precedence over the file
        conflicts = [option for name, option in OF_PRESET.items() if name in explicit]
        if conflicts:
            names = ", ".join(OF_PRESET.values())
            raise QueryError(f"--preset {parameters['preset']} sets {names} itself: drop it, or drop your {conflicts[0]}")
    model = CausalModel(nodes=subject.file.nodes)
    do = parameters.pop("do", {})
    if not do:
        raise QueryError(
            "cst needs a question: pass --do ATTRIBUTE=VALUE, the value of the not protected, or write do = { ATTRIBUTE = VALUE } "
            f"in an audit file or in [situation] of {subject.path} (roots: {', '.join(model.roots)})"
        )
    for name in do:
        if name not in model.graph:
            raise QueryError(f"{subject.prefix}do {name}: is no node of the causal model; {nearest(name, model.graph)}")
    for name in parameters.get("attributes") or ():
        if name not in subject.frame.columns:
            origin = f"{subject.prefix}attribute" if "attributes" in given else f"{subject.path}: [situation]: attribute"
            raise DataError(f"{origin} {name}: the table has no such column; {nearest(name, map(str, subject.frame.columns))}")
    return SituationTesting(model, subject.decider, do=do, seed=work.seed, threads=work.jobs, **parameters).fit(subject.frame)


def solve(settings: CstSettings, subject: CstSubject, work: Work) -> CstResult:
    """Test every intervention, run the further analyses that the settings ask for, and prepare case files.

    After Ctrl-C, or when the time is up, tested interventions and finished draws are kept; the store holds the searches' partial
    results for --resume.
    Raises QueryError, DataError, SchemaError; OutOfTime and Interrupted before the first intervention is tested.
    """
    _check_certify(settings, subject)
    with Parts.of(work) as parts:
        return _solve(settings, subject, work, parts)


def _solve(settings: CstSettings, subject: CstSubject, work: Work, parts: Parts) -> CstResult:
    test = testing(settings, subject, work)
    case_rows = named_cases(test, settings.case)
    _check_linear(test, settings)
    interventions = test.interventions()
    tests: list[Intervention] = []
    robust: list[ClaimRobustness] = []
    proved: list[CertifiedDecisions] = []
    notes: list[str] = []
    stopped = False
    try:
        _run_tests(test, settings, work, tests, parts)
        if settings.sensitivity:
            robust, timed_out = _robustness(test, tests, work)
            notes += ["How wrong the causal model must be was not finished: the time was up (--timeout)."] if timed_out else []
        if settings.certify is not None:
            proved = _certify(settings.certify, subject, test, [result.found.do for result in tests], work)
    except KeyboardInterrupt:
        if not tests:
            note = "" if parts.again else ": nothing is kept"
            raise Interrupted(f"interrupted before the first intervention was tested{note}") from None
        stopped = True
    unmeasured = [result.name for result in tests if settings.chance and result.chance is None]
    if unmeasured:
        names = "), do(".join(unmeasured)
        notes.insert(0, f"What chance finds (--chance) was not finished for do({names}): there was no time.")
    undrawn = "" if settings.draws is None else ", ".join(_missing_draws(settings.draws, tests))
    notes += [f"Of the {settings.draws} draws asked for there are {undrawn}: there was no time for more."] if undrawn else []
    if stopped and ((settings.sensitivity and not robust) or (settings.certify is not None and not proved)):
        notes.append("Interrupted before all of --sensitivity and --certify was done: what is not shown is not known.")
    network = subject.network
    parts.whole = not stopped and not notes and len(tests) == len(interventions)
    return CstResult(
        query=CstQuery.of(test, tests[0], subject.words), equations=list(test.causal_model_.equations()), tests=tests,
        not_tested=[in_words(do) for do in interventions[len(tests) :]], notes=notes, sensitivity=robust, certified=proved,
        model_sha256=None if network is None else network.model.source_sha256,
        schema_sha256=None if network is None else network.schema.sha256,
        causal_sha256=sha256(subject.path.read_bytes()).hexdigest(), seconds=work.seconds, seed=work.seed,
        interrupted=parts.with_remedy("what was tested until then is kept") if stopped else None, model=test,
        causal_file=subject.path.name,
        differing=differing(test), top=work.top, to_folder=work.folder is not None,
        cases=_cases(test, tests, case_rows, settings.cases if work.folder is not None else 0, [*tests, *robust, *proved]),
    )


def _run_tests(test: SituationTesting, settings: CstSettings, work: Work, results: list[Intervention], parts: Parts) -> None:
    """Test the interventions in turn and append the results to `results`, whole tests only. Raises OutOfTime before the first."""
    try:
        for do in test.interventions():
            label = f"do({in_words(do)}), searches"
            with work.bar(label) as progress:
                results.append(Intervention.of(test, do, work.stopping(label, progress), parts))
            if settings.chance:
                label = f"do({in_words(do)}), deals"
                with work.bar(label) as progress:
                    by_chance = chance(test, do, deals=settings.chance, progress=work.stopping(label, progress), parts=parts)
                results[-1] = results[-1].model_copy(update={"chance": by_chance})
            if settings.draws is not None:
                _redraw(test, settings.draws, work, results, parts)
    except OutOfTime:
        if not results:
            raise


def _redraw(test: SituationTesting, draws: int, work: Work, results: list[Intervention], parts: Parts) -> None:
    """Redraw the categories of the last intervention's counterfactuals; keep the draws if there are two or more."""
    result, label, redrawn = results[-1], f"do({results[-1].name}), draws", []
    categories = test.drawn(result.found.do)
    try:
        if categories:
            with work.bar(label) as progress:
                report = work.stopping(label, progress)
                for cases in redraws(test, result.found, draws=draws, parts=parts):
                    redrawn.append(cases)
                    report(len(redrawn), draws)
        else:
            redrawn += redraws(test, result.found, draws=1)
    finally:
        if len(redrawn) > 1 or not categories:
            drawn_cases = DrawnCases.of(redrawn, k=result.smallest, seed=test.seed, categories=categories)
            results[-1] = result.model_copy(update={"draws": drawn_cases})


def _missing_draws(draws: int, tests: Sequence[Intervention]) -> Iterator[str]:
    """Yield a line for each intervention with fewer draws than asked for (the test itself counts as one)."""
    for test in tests:
        count = 1 if test.draws is None else len(test.draws.seeds)
        if count < draws and (test.draws is None or test.draws.categories):
            yield f"{count} for do({test.name})"


def _robustness(test: SituationTesting, tests: Sequence[Intervention], work: Work) -> tuple[list[ClaimRobustness], bool]:
    """Return the robustness of each intervention's claims, and True if the time ran out."""
    results = []
    try:
        for result in tests:
            label = f"do({result.name}), sensitivity"
            with work.bar(label) as progress:
                results.append(ClaimRobustness.of(test, result, work.stopping(label, progress)))
    except OutOfTime:
        return [], True
    return results, False


def _certify(
    level: float, subject: CstSubject, test: SituationTesting, interventions: Sequence[Mapping[str, Any]], work: Work
) -> list[CertifiedDecisions]:
    """Certify the complainants of each intervention, in equal shares of the time that is left, and save the proofs.

    Raises QueryError, DataError, SchemaError as `certify_counterfactuals` does, as where a mechanism is not linear.
    """
    decider = subject.network
    assert decider is not None, "checked before the run"
    results = []
    for index, do in enumerate(interventions):
        with work.bar(f"certified, do({in_words(do)})") as progress:
            certified = certify_counterfactuals(
                test.causal_model_, decider.model, decider.schema, test.frame_, do=do, level=level,
                budget=work.budget(1 / (len(interventions) - index)), progress=progress,
            )
        path = work.certificate and _certificate_path(work.certificate, in_words(do))
        own_work = work if len(interventions) == 1 else replace(work, certificate=path)
        file, saved = own_work.save_proof(certified.certificate, "nothing was proved")
        results.append(CertifiedDecisions.of(certified, rows=test.frame_.index, file=file, saved=saved))
    return results


def _certificate_path(certificate: Path, name: str) -> Path:
    """Return the file name of one intervention's certificate: proof.json.gz becomes proof-sex-Male.json.gz."""
    stem, dot, suffix = certificate.name.partition(".")
    return certificate.with_name(f"{stem}-{file_name(name)}{dot}{suffix}")


def named_cases(model: SituationTesting, named: Sequence[str]) -> list[list[int]]:
    """Return positions in the table of the rows that were named, for each intervention whose complainants they are.

    Raises QueryError, before the run, for a row that is no complainant of any intervention.
    """
    interventions = model.interventions()
    complainants = [model.complainants(do) for do in interventions]
    positions: list[list[int]] = [[] for _ in interventions]
    for name in dict.fromkeys(named):
        errors = []
        for n, do in enumerate(interventions):
            try:
                positions[n].append(place_of(model.frame_, do, complainants[n], name))
            except QueryError as error:  # it may be a complainant of another intervention
                errors.append(error)
        if len(errors) == len(interventions):
            raise errors[0]
    return positions


def _check_certify(settings: CstSettings, subject: CstSubject) -> None:
    """Raise QueryError, before the run, where --certify has nothing to prove."""
    if settings.certify is not None and subject.network is None:
        raise QueryError("--certify proves what a network decides, and here decides none: pass MODEL and --schema, or drop it")


def _check_linear(model: SituationTesting, settings: CstSettings) -> None:
    """Raise QueryError where --sensitivity or --certify cannot vary the equations, such as those of categories; before the run."""
    certify = settings.certify is not None
    read_columns = reads(model.decider) if settings.sensitivity or certify else ()
    needed = {*read_columns, *(model.attributes_ if settings.sensitivity else ())}
    for do in model.interventions() if needed else ():
        try:
            Effects.of(model.causal_model_, model.causal_model_.check(model.frame_, do), needed=needed)
        except QueryError as error:
            raise QueryError(f"{'--sensitivity' if settings.sensitivity else '--certify'}: {error}") from None


def _cases(
    model: SituationTesting, tests: Sequence[Intervention], case_rows: Sequence[Sequence[int]], count: int,
    findings: Sequence[Intervention | CertifiedDecisions | ClaimRobustness],
) -> tuple[tuple[Case, ...], ...]:
    """Return cases for each test: the rows that were named, or the first `count` to review where none was.

    findings: further findings about complainants, for their files.
    """

    def notes(name: str, place: int) -> list[str]:
        return [line for finding in findings if finding.name == name and (line := finding.line_of(place)) is not None]

    positions = case_rows if any(case_rows) else [finding.review(count)["place"].tolist() for finding in tests]
    return tuple(
        tuple(Case.of(finding, model.causal_model_, place, seed=model.seed, notes=notes(finding.name, place)) for place in places)
        for finding, places in zip(tests, positions, strict=False)  # Ctrl-C may have left some interventions out
    )


def differing(model: SituationTesting) -> str | None:
    """Return a line if the decider on counterfactuals disagrees with recorded decisions; None if not."""
    decider = counterfactually(model.decider)
    if decider is None or decider is model.decider:
        return None
    try:
        count = int((decider.decide(model.frame_) != model.decisions_).sum())
    except DataError:  # the network's schema does not fit the rows; it decides on counterfactuals only
        return None
    if not count:
        return None
    return (
        f"Of the rows it decides {count:,} ({100 * count / len(model.decisions_):.1f} %) otherwise than is recorded: between a "
        "person and the counterfactual that may be all that differs (CF, CST)."
    )
