"""The audit's page in a real Chromium: nothing is loaded, nothing hostile runs, tables work, everybody can read it."""

import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest

from tests.audit_sample import HOSTILE, audit, replace
from tests.browser import Watched, chromium, opened
from verifair.auditing.page import page
from verifair.auditing.page.contents import PRINTED, WORDS
from verifair.systems.findings import DataTable, Standing, Statement, Tone

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
        assert watched.page.evaluate("getSelection().toString().trim().split('\\n').length") == 2


@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
def test_no_width_scrolls_sideways(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, width=width) as watched:
        watched.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_summary_fits_the_first_screen(seen: Watched) -> None:
    assert seen.page.locator(".summary").evaluate("e => e.getBoundingClientRect().bottom") < 800


def test_ten_headlines_of_two_lines_fit_the_first_screen_too(browser: Any, tmp_path: Path) -> None:
    whole = audit(witnesses=0)
    text = "Of the people of the table 119 of 1,000 (11.9%) would be decided otherwise with another age, all else equal."
    said = Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH, headline=True)
    tones = [Tone.BAD, Tone.WATCH, Tone.WATCH, Tone.WATCH, Tone.WATCH, Tone.GOOD, Tone.GOOD, Tone.GOOD, Tone.PLAIN, Tone.PLAIN]
    section = replace(whole.sections[0], statements=tuple(replace(said, tone=tone) for tone in tones))
    path = tmp_path / "headlines.html"
    path.write_text(page(replace(whole, sections=(section,))), encoding="utf-8")
    with opened(browser, path) as watched:
        assert watched.page.locator(".findings li").count() == 10
        assert watched.page.locator(".summary").evaluate("e => e.getBoundingClientRect().bottom") < 800


def test_a_long_table_scrolls_in_its_box_and_is_whole_on_paper(browser: Any, tmp_path: Path) -> None:
    whole = audit(witnesses=0)
    long = DataTable(title="Long", rows=pd.DataFrame({"n": range(60), "x": [n / 7 for n in range(60)]}))
    path = tmp_path / "long.html"
    path.write_text(page(replace(whole, sections=(replace(whole.sections[0], tables=(long,)),))), encoding="utf-8")
    with opened(browser, path) as watched:
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
    badges = seen.page.locator(".legend .badge")
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
            assert [watched.page.locator(tag).count() for tag in ("script", "style", "img")] == [1, 1, 2]
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
        assert watched.page.locator("#shown").inner_text() == "1 to 25 of 501 shown."
        assert time.perf_counter() - start < 3 * 4
        took = watched.page.evaluate(
            """() => { const start = performance.now(); document.querySelector("#witness-table th:nth-child(4) button").click();
                       const find = document.getElementById("find"); find.value = "radio"; find.dispatchEvent(new Event("input"));
                       document.body.offsetHeight; return performance.now() - start; }"""
        )
        assert took < 3000
