"""The audit's page in a real Chromium: nothing is loaded, nothing hostile runs, tables work, everybody can read it."""

import re
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from onnx import TensorProto, helper, numpy_helper
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import verifair as vf
from encoders.arrays import Array
from encoders.curves.layer import Curve, SmoothLayer
from encoders.model import Link, Model
from encoders.network import Network
from encoders.onnx.reader import read_model
from encoders.onnx.runtime import runtime_logits
from encoders.trees.mean import MeanOfTrees
from tests.audit_sample import HOSTILE, audit, replace
from tests.browser import Watched, chromium, opened
from tests.builders import layer, network_of, schema_of
from tests.soundness.classes.test_outcomes import FEATURES as RULE_FEATURES
from tests.soundness.classes.test_outcomes import ROWS as RULE_ROWS
from tests.soundness.classes.test_outcomes import RULES, outputs_of
from tests.soundness.classes.test_outcomes import made as rule_network
from tests.tree_models import random_tree, save
from verifair.auditing.audit_file import loads
from verifair.auditing.decisions import decisions
from verifair.auditing.page import page
from verifair.auditing.page.contents import PRINTED, WORDS
from verifair.auditing.result import AuditResult
from verifair.auditing.subject import AuditSubject
from verifair.auditing.subject import read as read_subject
from verifair.auditing.what_if import embedded, what_if
from verifair.engine.questions import decisions as decided
from verifair.engine.witness import _shown
from verifair.systems.results.findings import DataTable, Standing, Statement, Tone
from verifair.systems.subject import Subject

CONTRAST = """() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = rgba(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
      if (found[3] > 0) throw new Error("half transparent: " + e.outerHTML.slice(0, 80));
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if ((!text && !e.matches("svg.mark")) || !e.checkVisibility()) continue;
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    out.push([ratio, e.outerHTML.slice(0, 120)]);
  }
  return out;
}"""


def expect(locator: Any) -> Any:
    """Playwright's assertions, which wait."""
    from playwright.sync_api import expect

    return expect(locator)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "report of the audit.html"
    path.write_text(page(audit(groups=True)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 700, 360])
def test_a_long_name_on_the_first_screen_does_not_run_under_its_bar(browser: Any, tmp_path: Path, width: int) -> None:
    name = "Alter der antragstellenden Person (Jahre)"
    whole = audit(groups=True, name=name)
    answer = {"by_feature": [{"protected": name, "exchanged": {"people": 100, "asked": 100, "decided_otherwise": 5}}]}
    path = tmp_path / "long.html"
    path.write_text(page(replace(whole, sections=(replace(whole.sections[0], answer=answer),))), encoding="utf-8")
    with opened(browser, path) as watched:
        watched.page.set_viewport_size({"width": width, "height": 900})
        apart = watched.page.evaluate("""() => [...document.querySelectorAll(".groups .alone")].map((row) => {
          const words = document.createRange(), bar = row.querySelector("svg").getBoundingClientRect();
          words.selectNodeContents(row.querySelector(".what"));
          const said = words.getBoundingClientRect();
          return said.width > 0 && (said.right <= bar.left || said.bottom <= bar.top);
        })""")
    assert apart == [True]


@pytest.fixture
def seen(browser: Any, file: Path) -> Iterator[Watched]:
    """The page on a desktop. Whatever a test does with it, the console stays empty and nothing is fetched."""
    with opened(browser, file) as watched:
        yield watched
        assert watched.said == []
        assert {url for url in watched.requests if not url.startswith("data:")} == {file.as_uri()}


def column(watched: Watched, number: int) -> list[str]:
    return list(watched.page.locator(f"#witness-table tbody tr:visible td:nth-child({number})").all_inner_texts())


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").replace("+", "").replace(",", "")) for text in texts]


def press(watched: Watched, head: str) -> str | None:
    """Press the button in a head of the witness table; what aria-sort says then."""
    watched.page.locator("#witness-table").get_by_role("button", name=head, exact=True).click()
    told = watched.page.locator(f"#witness-table th:has-text('{head}')").get_attribute("aria-sort")
    return None if told is None else str(told)


def test_the_page_opens_from_disk_and_loads_nothing(seen: Watched) -> None:
    assert seen.page.title() == "Credit decisions of the German credit model: fairness audit"
    assert seen.page.locator("h1").all_inner_texts() == ["Credit decisions of the German credit model"]
    assert seen.page.locator("img").evaluate_all("all => all.every((i) => i.complete && i.naturalWidth > 300)")


def test_the_policy_lets_nothing_in(browser: Any, file: Path) -> None:
    with opened(browser, file) as watched:
        met: dict[str, str] = {}
        watched.page.on("requestfailed", lambda request: met.update({request.url: request.failure}))
        blocked = watched.page.evaluate(
            """async () => {
                const met = [];
                addEventListener("securitypolicyviolation", (e) => met.push(e.effectiveDirective));
                document.body.append(Object.assign(new Image(), { src: "https://example.invalid/a.png" }));
                await fetch("https://example.invalid/").catch(() => 0);
                const late = document.createElement("script");
                late.textContent = "document.title = 'taken'";
                document.body.append(late);
                document.body.setAttribute("style", "color: red");
                await new Promise((done) => setTimeout(done, 100));
                return met;
            }"""
        )
        assert {"img-src", "connect-src", "script-src-elem", "style-src-attr"} <= set(blocked)
        assert "taken" not in watched.page.title()
        assert met == {url: "csp" for url in watched.requests if url.startswith("http")}


@pytest.mark.parametrize(("head", "place"), [("Before", 4), ("After", 5), ("Difference", 6)])
def test_numbers_sort_as_numbers(seen: Watched, head: str, place: int) -> None:
    seen.page.select_option("#size", "0")
    assert press(seen, head) == "ascending"
    found = numbers(column(seen, place))
    assert len(found) == 61
    assert found == sorted(found)
    assert press(seen, head) == "descending"
    assert numbers(column(seen, place)) == sorted(found, reverse=True)
    assert seen.page.locator("#witness-table th[aria-sort]").count() == 1
    assert seen.page.locator("#said").inner_text() == f"Sorted by {head}, largest or last first."


@pytest.mark.parametrize(
    ("head", "place"), [("Counterexample", 1), ("Analysis", 2), ("Changed", 3), ("Decision", 7), ("As it runs", 8)]
)
def test_words_sort_as_words(seen: Watched, head: str, place: int) -> None:
    seen.page.select_option("#size", "0")
    assert press(seen, head) == "ascending"
    found = [text.split("\n")[0] for text in column(seen, place)]
    order = "texts => [...texts].sort(new Intl.Collator('en', { numeric: true }).compare)"
    assert found == seen.page.evaluate(order, found)
    assert len(set(found)) > 1
    press(seen, head)
    assert column(seen, place)[0].split("\n")[0] == found[-1]


def test_what_is_missing_is_last_whichever_way_a_table_is_sorted(seen: Watched) -> None:
    seen.page.locator("#section-1 summary").click()
    table = seen.page.locator("#section-1 table.sortable")
    for head, up in (("tiny", ["1.00e−09", "0.500", "–"]), ("gap", ["0.125", "0.250", "–"])):
        place = table.locator("th").all_inner_texts().index(head) + 1
        cells = table.locator(f"tbody td:nth-child({place})")
        table.get_by_role("button", name=head).click()
        assert cells.all_inner_texts() == up
        table.get_by_role("button", name=head).click()
        assert cells.all_inner_texts() == [up[1], up[0], up[2]]


def test_witnesses_are_found_by_words_analysis_and_flips_and_the_count_is_announced(seen: Watched) -> None:
    page, shown = seen.page, seen.page.locator("#shown")
    rows = page.locator("#witness-table tbody tr:visible")
    assert shown.get_attribute("role") == "status"
    assert (rows.count(), shown.inner_text()) == (10, "1 to 10 of 61 shown.")
    page.get_by_label("Rows").select_option("25")
    assert (rows.count(), shown.inner_text()) == (25, "1 to 25 of 61 shown.")
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    assert (rows.count(), shown.inner_text()) == (11, "51 to 61 of 61 shown.")
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_label("Find").fill("RADIO/tv 4,750")
    assert shown.inner_text() == "1 to 1 of 1 shown; 61 counterexamples in all."
    assert "37 years" in (rows.first.text_content() or "")
    page.get_by_label("Find").fill("nobody")
    assert (rows.count(), shown.inner_text()) == (0, "None shown; 61 counterexamples in all.")
    page.get_by_label("Find").fill("")
    page.get_by_label("Analysis").select_option(label="Persistent bias")
    assert shown.inner_text() == "1 to 1 of 1 shown; 61 counterexamples in all."
    page.get_by_label("Analysis").select_option(label="all")
    page.get_by_label("Rows").select_option("0")
    page.get_by_label("decision flips only").check()
    kept = set(column(seen, 7))
    assert kept == {"flips"}
    assert 0 < rows.count() < 61


def test_a_section_leads_to_its_own_counterexamples(seen: Watched) -> None:
    seen.page.locator("#section-2 .to-witnesses").click()
    assert seen.page.locator("#shown").inner_text() == "1 to 1 of 1 shown; 61 counterexamples in all."
    assert set(column(seen, 2)) == {"Persistent bias"}


def test_the_tables_work_from_the_keyboard(seen: Watched) -> None:
    seen.page.locator("#witness-table").get_by_role("button", name="After").focus()
    outline = "e => getComputedStyle(e).outlineStyle + getComputedStyle(e).outlineWidth"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate(f"({outline})(document.activeElement)") == "solid3px"
    assert seen.page.locator("#witness-table th:has-text('After')").get_attribute("aria-sort") == "ascending"
    seen.page.locator("#witness-table summary").first.press("Enter")
    assert seen.page.locator("#witness-table details").first.locator("dl").is_visible()


def test_commands_are_copied(browser: Any, file: Path) -> None:
    with opened(browser, file, permissions=["clipboard-read", "clipboard-write"]) as watched:
        watched.page.locator("#section-1 summary").click()
        watched.page.locator("#section-1 .copy").click()
        expect(watched.page.locator("#said")).to_have_text("The command is copied.")
        assert watched.page.locator("#section-1 .copy").inner_text() == "Copied"
        copied = watched.page.evaluate("navigator.clipboard.readText()")
        assert copied == "verifair check certificates/certify.json.gz --model german.onnx --schema german.toml"
        assert watched.said == []


def test_commands_are_copied_where_a_page_has_no_clipboard(browser: Any, file: Path) -> None:
    with opened(browser, file) as watched:
        watched.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
        watched.page.locator("#made .copy").click()
        expect(watched.page.locator("#said")).not_to_be_empty()
        said = watched.page.evaluate("getSelection().toString().trim()")
        assert said == "verifair check certificates .. --model german.onnx --schema german.toml"


@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
def test_no_width_scrolls_sideways_or_hides_a_column(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, width=width) as watched:
        watched.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width
        for part in (".range", ".scale svg", ".ratio", ".rule"):  # a phone shows all that a desktop does
            seen = watched.page.locator(f".groups .group {part}").evaluate_all("all => all.map((e) => e.checkVisibility())")
            assert seen == [True] * 3


@pytest.mark.parametrize(("width", "told"), [(360, True), (1280, False)])
def test_what_is_wider_than_its_box_says_that_it_scrolls(browser: Any, tmp_path: Path, width: int, told: bool) -> None:
    whole = audit(witnesses=0)
    wide = DataTable(title="Wide", rows=pd.DataFrame({f"column {n}": [1_000_000] for n in range(8)}))
    path = tmp_path / "wide.html"
    path.write_text(page(replace(whole, sections=(replace(whole.sections[0], tables=(wide,)),))), encoding="utf-8")
    with opened(browser, path, width=width) as watched:
        watched.page.locator("#section-1 summary").click()  # in closed details nothing has a width
        expect(watched.page.locator(".table .note").first).to_be_visible(visible=told)
        watched.page.set_viewport_size({"width": 1640 - width, "height": 900})
        expect(watched.page.locator(".table .note").first).to_be_visible(visible=not told)


def test_the_summary_fits_the_first_screen(seen: Watched) -> None:
    assert seen.page.locator(".summary").evaluate("e => e.getBoundingClientRect().bottom") < 800


def test_much_to_say_is_cut_to_the_first_screen(browser: Any, tmp_path: Path) -> None:
    """Ten headlines in each of four analyses: two of each are shown. What was not examined stands above them."""
    whole = audit(witnesses=9, groups=True)
    text = "age: of 1,000 pairs of comparable people, 11.9% are decided differently, 12.0% alike for other reasons."
    said = Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH, headline=True)
    sections = [replace(one, statements=(said,) * 10) for one in whole.sections]
    path = tmp_path / "headlines.html"
    path.write_text(page(replace(whole, sections=tuple(sections))), encoding="utf-8")
    with opened(browser, path) as watched:
        assert watched.page.locator(".analyses ul li").count() == 8
        for part, most in ((".gaps", 400), (".analyses", 850)):
            assert watched.page.locator(part).evaluate("e => e.getBoundingClientRect().bottom") < most


def test_a_long_table_scrolls_in_its_box_and_is_whole_on_paper(browser: Any, tmp_path: Path) -> None:
    whole = audit(witnesses=0)
    long = DataTable(title="Long", rows=pd.DataFrame({"n": range(60), "x": [n / 7 for n in range(60)]}))
    path = tmp_path / "long.html"
    path.write_text(page(replace(whole, sections=(replace(whole.sections[0], tables=(long,)),))), encoding="utf-8")
    with opened(browser, path) as watched:
        watched.page.locator("#section-1 summary").click()
        box, head = watched.page.locator(".tall"), watched.page.locator(".tall thead")
        assert box.evaluate("e => e.clientHeight < 500 && e.scrollHeight > 1500")
        box.evaluate("e => { e.scrollTop = 900; }")
        assert head.locator("th").first.evaluate("e => e.getBoundingClientRect().top") - box.bounding_box()["y"] < 2
        watched.page.emulate_media(media="print")
        assert box.evaluate("e => e.clientHeight > 1000 && e.clientHeight === e.scrollHeight")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: Any, file: Path, scheme: Any) -> None:
    with opened(browser, file, color_scheme=scheme) as watched:
        watched.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        found = watched.page.evaluate(CONTRAST)
        assert len(found) > 300
        assert [line for line in found if line[0] < 4.5] == []
        paper = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        corner = imread(BytesIO(watched.page.locator("figure img").first.screenshot()))[3, 3, :3]
        assert corner == pytest.approx([float(part) / 255 for part in re.findall(r"\d+", paper)], abs=0.02)


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 360)])
def test_axe_finds_nothing(browser: Any, tmp_path: Path, scheme: Any, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    path = tmp_path / "short.html"
    path.write_text(page(audit(witnesses=4)), encoding="utf-8")
    with opened(browser, path, width=width, color_scheme=scheme) as watched:
        found = axe.Axe().run(watched.page).response
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == []
        assert len(found["passes"]) > 20


def test_headings_landmarks_and_pictures_have_order_and_names(seen: Watched) -> None:
    page = seen.page
    levels = [int(name[1]) for name in page.locator("h1, h2, h3, h4").evaluate_all("all => all.map((e) => e.tagName)")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.locator(name).count() for name in ("main", "nav", "body > header", "body > footer")] == [1, 1, 1, 1]
    assert page.locator("img").evaluate_all("all => all.every((e) => e.alt.length > 20)")
    assert page.locator("svg").evaluate_all("all => all.every((e) => e.getAttribute('aria-hidden') === 'true')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_every_standing_has_a_word_and_a_shape(seen: Watched) -> None:
    badges = seen.page.locator(".words dl .badge")
    assert badges.all_text_contents() == [word for word, _ in WORDS.values()]
    shapes = badges.locator("use").evaluate_all("all => all.map((e) => document.querySelector(e.getAttribute('href')).innerHTML)")
    assert len(set(shapes)) == len(WORDS)


def test_without_scripts_the_page_is_whole(browser: Any, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as watched:
        assert watched.page.locator("#witness-table tbody tr:visible").count() == 61
        assert watched.page.locator("button:visible, #tools:visible").count() == 0


def test_printed_it_is_whole_but_for_long_tables(browser: Any, file: Path, tmp_path: Path) -> None:
    with opened(browser, file) as watched:
        watched.page.emulate_media(media="print")
        assert watched.page.locator("#witness-table tbody tr:visible").count() == PRINTED
        assert watched.page.locator(".on-paper:visible").inner_text().startswith(f"At most {PRINTED} counterexamples are printed")
        watched.page.emulate_media(media="screen")
        watched.page.get_by_label("Analysis").select_option(label="Persistent bias")  # its one is the last in the table
        watched.page.emulate_media(media="print")
        assert watched.page.locator("#witness-table tbody tr:visible").all_inner_texts() == [
            watched.page.locator("#witness-table tbody tr:not([hidden])").inner_text()
        ]
        watched.page.emulate_media(media="screen")
        watched.page.get_by_label("Analysis").select_option(label="all")
        watched.page.emulate_media(media="print")
        assert watched.page.locator(".tools, .pager, .copy").evaluate_all("all => all.every((e) => !e.checkVisibility())")
        heads = "all => all.every((e) => getComputedStyle(e).display === 'contents')"
        assert watched.page.locator("th button").evaluate_all(heads), "a head with a box in it is not repeated on the next page"
        address = "getComputedStyle(document.querySelector('a.file'), '::after').content"
        assert "certificates/certify.json.gz" in watched.page.evaluate(address)
        watched.page.emulate_media()
        before = watched.page.evaluate("addEventListener('afterprint', () => { window.printed = true })")
        assert before is None
        printed = tmp_path / "report.pdf"
        watched.page.pdf(path=str(printed), prefer_css_page_size=True, tagged=True, outline=True)
        assert watched.page.locator("details[open]").count() == 0
    written = printed.read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", written))
    titles = re.findall(rb"/Title\s*\(([^)]*)\)", written) + re.findall(rb"/Title\s*<([^>]*)>", written)
    assert 8 <= pages <= 30
    assert len(titles) > 6


def test_hostile_names_are_words_and_nothing_else(browser: Any, tmp_path: Path) -> None:
    html = page(audit(name=HOSTILE, title=HOSTILE, witnesses=3, groups=True))
    bare = re.sub(r"<meta http-equiv[^>]*>", "", html)
    assert bare != html
    for name, text in (("with.html", html), ("without.html", bare)):  # escaping alone is enough, the policy comes on top
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        with opened(browser, path) as watched:
            assert watched.page.title() == f"{HOSTILE}: fairness audit"
            assert watched.page.locator("h1").inner_text() == HOSTILE
            assert [watched.page.locator(tag).count() for tag in ("script", "style", "img")] == [1, 1, 1]
            assert watched.page.locator("#witness-table td:nth-child(3)").first.inner_text().startswith(HOSTILE)
            assert watched.said == []


@pytest.fixture
def audited(inside: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Path:
    """A page as the command writes it, of the shipped model."""
    code, _, errors = inside("audit", "--demo", "german", "--only", "pba,kmax", "--timeout", 8, "--out", "report.html")
    assert code == 0, errors
    return tmp_path / "report.html"


def test_a_real_audit_opens_without_a_word_and_its_links_lead_to_its_files(browser: Any, audited: Path) -> None:
    for width in (360, 1280):
        with opened(browser, audited, width=width) as watched:
            assert watched.said == []
            assert {url for url in watched.requests if not url.startswith("data:")} == {audited.as_uri()}
            assert watched.page.evaluate("document.documentElement.scrollWidth") == width
            assert [line for line in watched.page.evaluate(CONTRAST) if line[0] < 4.5] == []
            links = watched.page.locator("a.file").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
            assert links
            assert [link for link in links if not (audited.parent / unquote(link)).is_file()] == []
            assert watched.page.locator("a[href^='#']").evaluate_all("all => all.every((a) => document.querySelector(a.hash))")


def test_five_hundred_counterexamples_are_quick(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    path.write_text(page(audit(witnesses=500)), encoding="utf-8")
    start = time.perf_counter()
    with opened(browser, path) as watched:
        assert watched.page.locator("#shown").inner_text() == "1 to 10 of 501 shown."
        assert time.perf_counter() - start < 3 * 4
        took = watched.page.evaluate(
            """() => { const start = performance.now(); document.querySelector("#witness-table th:nth-child(4) button").click();
                       const find = document.getElementById("find"); find.value = "radio"; find.dispatchEvent(new Event("input"));
                       document.body.offsetHeight; return performance.now() - start; }"""
        )
        assert took < 3000


def lively(demo: str, **changes: Any) -> tuple[AuditSubject, AuditResult]:
    """A shipped example, and a page whose *What if* is about it; its first counterexample is the table's first person."""
    text = f'[model]\ndemo = "{demo}"\n[data]\ndemo = "{demo}"\n[analyses.kmax]\n'
    subject = read_subject(loads(text, name="a.toml", folder=Path.cwd()))
    whole = audit(witnesses=2)
    x = subject.schema.decode(subject.schema.raw(subject.rows().frame)[0])
    found = (replace(whole.sections[0].witnesses[0], x=x), *whole.sections[0].witnesses[1:])
    sections = (replace(whole.sections[0], witnesses=found, settings={"box": {}}, answer={"by_feature": []}), *whole.sections[1:])
    made = replace(
        whole, sections=sections, protected=list(subject.protected), what_if=what_if(subject, sections),
        decisions=decisions(subject),
    )
    return subject, replace(made, **changes)


def computing(made: AuditResult, model: Model) -> AuditResult:
    """The page with another model in it."""
    assert made.what_if is not None
    return replace(made, what_if=replace(made.what_if, content={**made.what_if.content, "model": embedded(model)}))


def outputs(browser: Any, path: Path, made: AuditResult, x: Array) -> Array:
    """What the page's script makes of network columns x (B, n); NaN is missing."""
    path.write_text(page(made), encoding="utf-8")
    with opened(browser, path) as watched:
        rows = [[None if np.isnan(v) else v for v in row] for row in x.tolist()]
        found = watched.page.evaluate("rows => document.getElementById('what-if').outputs(rows)", rows)
        assert watched.said == []
    return np.array(found)


@pytest.mark.parametrize("demo", ["german", "adult"])
def test_the_page_computes_what_the_runtime_computes_and_decides_as_the_engine(browser: Any, tmp_path: Path, demo: str) -> None:
    subject, made = lively(demo)
    domain, random = subject.schema.domain, np.random.default_rng(0)
    raw = domain.lower + random.random((1000, domain.variables)) * (domain.upper - domain.lower)
    raw[:500] = subject.schema.raw(subject.rows().frame)[:500]
    raw[900:] += random.integers(-1, 2, size=raw[900:].shape)  # some of them are nobody
    raw = np.where(domain.integer, np.round(raw), raw)
    (tmp_path / "page.html").write_text(page(made), encoding="utf-8")
    with opened(browser, tmp_path / "page.html") as watched:
        found = watched.page.evaluate("rows => document.getElementById('what-if').answers(rows)", raw.tolist())
        assert watched.said == []
    legal = np.array([one["illegal"] is None for one in found])
    assert (legal == subject.schema.inside(raw)).all()
    assert 500 < legal.sum() < 1000
    found, x = [one for one in found if one["illegal"] is None], subject.schema.encode(raw[legal])
    logits = runtime_logits(subject.network, x.astype(np.float32)).astype(np.float64)
    probability = expit(logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0])
    assert np.abs([one["shown"] for one in found] - probability).max() < 1e-6
    favoured = subject.schema.outcome.favourable(decided(subject.network, x))
    sure = np.array([not one["close"] for one in found])
    assert sure.sum() > 0.99 * len(sure)
    assert (np.array([one["good"] for one in found]) == favoured)[sure].all()


def test_the_page_computes_trees_and_takes_the_branch_of_what_is_missing(browser: Any, tmp_path: Path) -> None:
    _, made = lively("german")
    random = np.random.default_rng(1)
    trees = [random_tree(random, 5, 4, scores=2) for _ in range(30)]
    model = read_model(save(tmp_path / "m.onnx", trees, 5, base=[0.25, -0.5], missing=True))
    x = random.choice(np.array([-1, 0, 0.5, 1, 2]), size=(1000, 5)).astype(np.float32)
    x = np.nextafter(x, x + random.integers(-1, 2, size=x.shape).astype(np.float32))
    x[random.random(x.shape) < 0.2] = np.nan
    found = outputs(browser, tmp_path / "page.html", computing(made, model), x.astype(np.float64))
    expected = runtime_logits(model, x)
    assert np.abs(found - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())
    assert len(np.unique(found)) > 100


def test_the_page_computes_means_of_functions_of_trees(browser: Any, tmp_path: Path) -> None:
    _, made = lively("german")
    random = np.random.default_rng(1)
    x = random.integers(-3, 4, size=(400, 5)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + random.normal(size=400) > 0).astype(int)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0)
    boosted = GradientBoostingClassifier(n_estimators=5, random_state=0)
    stacked = StackingClassifier([("a", forest), ("b", boosted), ("c", CalibratedClassifierCV(boosted, cv=2))], cv=3)
    mixed = VotingClassifier([("a", forest), ("b", LogisticRegression()), ("c", GaussianNB())], voting="soft")
    listed = [CalibratedClassifierCV(forest, cv=3), CalibratedClassifierCV(forest, cv=3, method="isotonic"), stacked, mixed]
    booster = pytest.importorskip("xgboost").XGBClassifier(n_estimators=5, max_depth=3)
    listed.append(CalibratedClassifierCV(booster, cv=3, method="isotonic"))
    for model in listed:
        read_in = vf.read(model.fit(x, y))
        assert isinstance(read_in, MeanOfTrees)
        found = outputs(browser, tmp_path / "page.html", computing(made, read_in), x.astype(np.float64))
        assert np.abs(found - runtime_logits(read_in, x)).max() < 1e-5
        assert len(np.unique(found)) > 50


MORE_RULES = {"logit > 0.5": (1, lambda row: row[0] > 0.5), "logit < -0.5": (1, lambda row: row[0] < -0.5)}


@pytest.mark.parametrize("rule", [*RULES, *MORE_RULES])
def test_the_page_decides_by_every_rule_as_the_schema_does(browser: Any, tmp_path: Path, rule: str) -> None:
    """Ties and thresholds that are met exactly are told as too close, and decided by the page all the same."""
    outputs, favourable = {**RULES, **MORE_RULES}[rule]
    network, schema = rule_network(5, outputs), schema_of(*RULE_FEATURES, positive=rule)
    _, made = lively("german")
    content = what_if(Subject(network=network, schema=schema, data=None, protected=("sex",), model=Path("m.onnx")), []).content
    assert made.what_if is not None
    content = made.what_if.content | {name: content[name] for name in ("features", "forbidden", "protected", "model", "output")}
    made = replace(made, what_if=replace(made.what_if, content=content))
    (tmp_path / "page.html").write_text(page(made), encoding="utf-8")
    with opened(browser, tmp_path / "page.html") as watched:
        found = watched.page.evaluate("rows => document.getElementById('what-if').answers(rows)", RULE_ROWS.tolist())
    x = schema.encode(RULE_ROWS)
    good, close = (np.array([one[name] for one in found]) for name in ("good", "close"))
    sure = ~close if outputs > 1 else np.ones(len(x), dtype=bool)
    assert (good == [favourable(row) for row in outputs_of(network, RULE_ROWS)])[sure].all()
    assert sure.any()
    if schema.outcome.of != "logit" or schema.outcome.plain:
        assert np.abs(np.array([one["shown"] for one in found]) - _shown(schema, network.whole, x)).max() < 1e-6


def test_the_page_computes_every_curve_and_every_slope(browser: Any, tmp_path: Path) -> None:
    _, made = lively("german")
    count = len(Curve)
    bent = network_of(([[1.0]], [0.0])).layers[0]
    smooth = SmoothLayer(
        weight=np.ones((count, 1)), bias=np.zeros(count), bend=np.where(np.arange(count) == 0, 0.25, 1.0),
        curve=np.arange(count, dtype=np.int8),
    )
    model = Network(layers=(bent, smooth, layer(np.eye(count))), link=Link.IDENTITY, source_sha256="0" * 64)
    x = np.concatenate([np.linspace(-12, 12, 991), [-60, -39.9, -1e-3, 0, 1e-3, 39.9, 60, 3, -3]]).astype(np.float32)[:, None]
    found = outputs(browser, tmp_path / "page.html", computing(made, model), x.astype(np.float64))
    expected = model.forward(x.astype(np.float64))
    assert (np.abs(found - expected) <= 1e-6 * (1 + np.abs(expected))).all()


def test_the_page_computes_products_that_are_much_smaller_than_their_squares(browser: Any, tmp_path: Path) -> None:
    """x^2 y = ((x^2 + y)^2 - (x^2 - y)^2) / 4, of columns that nobody has scaled: float32 would keep nothing of y."""
    _, made = lively("german")
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Gather", ["x", "i"], ["t"], axis=1),
             helper.make_node("Mul", ["s", "t"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.array([1, 0]), "i")])
    model = read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    x = np.column_stack([np.random.default_rng(0).integers(1, 100_000, 200), np.arange(200) % 7 + 1]).astype(np.float64)
    found = outputs(browser, tmp_path / "page.html", computing(made, model), x)
    expected = x**2 * x[:, ::-1]
    assert (np.abs(found - expected) <= 1e-5 * expected).all()


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    _, made = lively("german")
    path = tmp_path_factory.mktemp("living") / "page.html"
    path.write_text(page(made), encoding="utf-8")
    return made, path


def test_a_person_is_typed_taken_over_and_told_when_nobody_can_be_so(browser: Any, living: tuple[AuditResult, Path]) -> None:
    made, path = living
    with opened(browser, path) as watched:
        said, seen = watched.page.locator("#person-said"), watched.page.locator("#person-table tbody tr:visible")
        first = said.inner_text()
        assert first.startswith("Probability of ")
        assert seen.count() > len(made.protected)
        assert watched.page.locator(".try").count() == 1
        watched.page.locator(".try").focus()
        watched.page.keyboard.press("Enter")
        assert watched.page.evaluate("document.activeElement.id") == "what-if"
        assert made.what_if is not None
        row = made.what_if.people[0]
        assert row is not None
        values = watched.page.locator("#person [id^=wi-]:not([type=range])").evaluate_all("all => all.map((e) => Number(e.value))")
        assert values == row
        months = watched.page.get_by_label("duration (months)")
        months.fill("1")
        assert "Not a legal person: duration must be" in said.inner_text()
        assert seen.count() == 0
        months.fill("")
        assert "duration has no value" in said.inner_text()
        months.fill("30.5")
        assert "whole number" in said.inner_text()
        months.fill("30")
        slider = watched.page.get_by_label("duration, slider")
        assert slider.input_value() == "30"
        slider.focus()
        watched.page.keyboard.press("ArrowRight")
        assert months.input_value() == "31"
        watched.page.get_by_role("button", name="The typical person").click()
        assert said.inner_text() == first
        assert watched.said == []


def test_the_threshold_moves_the_rates_and_starts_at_the_decisions(browser: Any, living: tuple[AuditResult, Path]) -> None:
    made, path = living
    assert made.decisions is not None
    assert made.decisions.scores is not None
    with opened(browser, path) as watched:
        count = "edge => document.getElementById('what-if').counted(edge)"
        own = watched.page.evaluate(count, made.decisions.scores.own)
        expected = {(one.feature, one.group): (one.people, one.favourable) for one in made.decisions.groups}
        assert {(one["feature"], one["group"]): (one["n"], one["k"]) for one in own} == expected
        table = watched.page.locator("#threshold-table tbody")
        shown = table.inner_text()
        rates = [f"{100 * one.rate.low:.1f}% to {100 * one.rate.high:.1f}%" for one in made.decisions.groups]
        assert [rate for rate in rates if rate not in shown] == []
        ratios = [f"({one.ratio_low:.2f} to {one.ratio_high:.2f})" for one in made.decisions.groups if one.ratio_low is not None]
        assert ratios
        assert [ratio for ratio in ratios if ratio not in shown] == []
        watched.page.locator("#threshold").focus()
        watched.page.keyboard.press("ArrowRight")
        more = watched.page.evaluate(count, made.decisions.scores.own + 40)
        assert sum(one["k"] for one in more) < sum(one["k"] for one in own)
        watched.page.keyboard.press("End")
        assert set(table.locator("td:nth-child(4)").all_inner_texts()) == {"0.0%"}
        assert set(table.locator("td:nth-child(7)").all_inner_texts()) == {"not compared"}
        watched.page.get_by_role("button", name="The model's own").click()
        assert table.inner_text() == shown
        assert watched.said == []


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_what_if_can_be_read_by_everybody(browser: Any, living: tuple[AuditResult, Path], scheme: Any, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    with opened(browser, living[1], width=width, color_scheme=scheme) as watched:
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width
        assert [line for line in watched.page.evaluate(CONTRAST) if line[0] < 4.5] == []
        found = axe.Axe().run(watched.page, context="#what-if").response
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == []


def test_what_if_says_what_it_lacks(browser: Any, living: tuple[AuditResult, Path], tmp_path: Path) -> None:
    made, path = living
    with opened(browser, path, java_script_enabled=False) as watched:
        assert "needs JavaScript" in watched.page.locator(".needs-script:visible").inner_text()
        assert watched.page.locator("#what-if button:visible, #what-if input:visible").count() == 0
    assert made.what_if is not None
    large = replace(made.what_if, problem="The model is too large to embed.", content={**made.what_if.content, "model": None})
    (tmp_path / "large.html").write_text(page(replace(made, what_if=large)), encoding="utf-8")
    with opened(browser, tmp_path / "large.html") as watched:
        assert "too large to embed" in watched.page.locator("#what-if").inner_text()
        assert watched.page.locator("#threshold-tool").is_visible()
        assert watched.said == []


def test_what_is_proved_of_everybody_is_shown_of_the_person(browser: Any, tmp_path: Path) -> None:
    subject, made = lively("german")
    kept = {"protected": "sex", "largest_gap": {"lower": 0.125, "upper": 0.25, "quantity": "probability"}}
    section = replace(made.sections[0], settings={"box": {"duration": (4, 40)}}, answer={"by_feature": [kept]})
    texts = []
    files = (("gap-sex.json.gz", "accepted"), ("gap-age.json.gz", "accepted in part"), ("certify-sex.json.gz", "rejected"))
    for name, checked in files:
        proof = replace(section.evidence[0], file=f"page.files/{name}", proves=f"{name} holds.", checked=checked)
        texts.append(proof)
    sections = (replace(section, evidence=tuple(texts)), *made.sections[1:])
    made = replace(made, sections=sections, what_if=what_if(subject, sections))
    (tmp_path / "page.html").write_text(page(made), encoding="utf-8")
    with opened(browser, tmp_path / "page.html") as watched:
        months = watched.page.get_by_label("duration (months)")
        months.fill("40")
        told = watched.page.locator("#person-held p").all_inner_texts()
        shown = float(watched.page.locator("#person-table tr.own td.n").first.inner_text())
        assert len(told) == 1
        assert told[0].startswith("Proved, and accepted by the separate checker in the audit: gap-sex.json.gz holds.")
        low, high = map(float, re.findall(r"\d\.\d{4}", told[0]))
        assert low <= shown - 0.25 + 0.001 or low == 0
        assert high >= shown + 0.25 - 0.001 or high == 1
        months.fill("41")
        assert watched.page.locator("#person-held p").count() == 0
