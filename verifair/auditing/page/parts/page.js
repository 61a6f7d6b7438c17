"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (id) => document.getElementById(id);
  const say = (words) => { one("said").textContent = words; };

  /* Tables are sorted by the buttons in their heads. What is missing stays last, whichever way. */
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.v === undefined) return (cell.querySelector(".sentence") || cell).textContent.trim();
    return cell.dataset.v === "" ? null : { inf: Infinity, "-inf": -Infinity }[cell.dataset.v] ?? Number(cell.dataset.v);
  };
  const order = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return order.compare(String(a), String(b));
  };
  const sort = (table, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = [...table.tBodies[0].rows].map((row) => [key(row, head.cellIndex), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...keyed.map(([, row]) => row));
    say(`Sorted by ${head.textContent.trim()}, ${down ? "largest or last" : "smallest or first"} first.`);
    table.dispatchEvent(new Event("sorted"));
  };
  for (const table of all("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head));
    }
  }

  /* What is wider than its box says that it scrolls. */
  const sizes = new ResizeObserver((entries) => {
    for (const box of new Set(entries.map(({ target }) => target.closest(".wide")))) {
      box.nextElementSibling.hidden = box.scrollWidth <= box.clientWidth;
    }
  });
  for (const box of all(".wide")) {
    const note = document.createElement("p");
    note.className = "note unprinted";
    note.textContent = "Wider than the page: scroll it sideways.";
    note.hidden = true;
    box.after(note);
    sizes.observe(box);
    sizes.observe(box.firstElementChild);
  }

  /* Commands can be copied. A page opened from disk may have no clipboard: then the command is selected and copied. */
  const copy = async (code, button) => {
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch {
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Select it";
    say(done ? "The command is copied." : "The command is selected; copy it with the keyboard.");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  for (const box of all(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy the command${box.matches("pre") ? "s" : ""}: ${box.textContent.trim().slice(0, 80)}`);
    button.addEventListener("click", () => copy(box.querySelector("code"), button));
    box.append(button);
  }

  /* On paper everything is open. */
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; });

  /* Counterexamples: found by words, by analysis, by decision; shown a page at a time. */
  const table = one("witness-table");
  if (!table) return;
  const words = new Map([...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]));
  let first = 0;
  const show = () => {
    const asked = one("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const section = one("only").value;
    const flips = one("flips").checked;
    const rows = [...table.tBodies[0].rows];
    const size = Number(one("size").value) || rows.length;
    const fits = rows.filter((row) => (!section || row.dataset.section === section) && (!flips || "flips" in row.dataset)
      && asked.every((word) => words.get(row).includes(word)));
    first = Math.max(0, Math.min(first, Math.floor((fits.length - 1) / size) * size));
    const kept = new Set(fits);
    for (const row of rows) row.hidden = !kept.has(row);
    fits.forEach((row, place) => row.classList.toggle("off-page", place < first || place >= first + size));
    const last = Math.min(first + size, fits.length);
    const range = fits.length ? `${first + 1} to ${last} of ${fits.length}` : "None";
    one("shown").textContent = `${range} shown${fits.length < rows.length ? `; ${rows.length} counterexamples in all` : ""}.`;
    one("back").disabled = first === 0;
    one("next").disabled = last >= fits.length;
  };
  const again = () => { first = 0; show(); };
  one("tools").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["find", "only", "size", "flips"]) one(id).addEventListener("input", again);
  table.addEventListener("sorted", again);
  one("back").addEventListener("click", () => { first -= Number(one("size").value); show(); });
  one("next").addEventListener("click", () => { first += Number(one("size").value); show(); });
  for (const link of all(".to-witnesses")) {
    link.addEventListener("click", () => { one("only").value = link.dataset.section; again(); });
  }
  one("tools").hidden = one("pager").hidden = false;
  show();
})();
