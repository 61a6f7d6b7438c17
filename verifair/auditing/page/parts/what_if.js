"use strict";
/* What if: the stored model, run in the page. Sums are kept in float64 and rounded to float32 where a runtime stores them,
   unless squares are among them. */
(() => {
  const one = (id) => document.getElementById(id);
  const known = JSON.parse(one("what-if-data").textContent);
  const { features, model, output, scores } = known;
  for (const told of document.querySelectorAll(".needs-script")) told.hidden = true;

  /* The model */
  const array = (text) => {
    const bytes = Uint8Array.from(atob(text.slice(3)), (c) => c.charCodeAt(0));
    return new { i4: Int32Array, f4: Float32Array, f8: Float64Array }[text.slice(0, 2)](bytes.buffer);
  };
  const erf = (t) => {  /* a series of terms of one sign, and 1 where it rounds to that */
    if (Math.abs(t) > 6) return Math.sign(t);
    let term = t, sum = t;
    for (let k = 1; Math.abs(term) > 1e-17 * Math.abs(sum); k++) { term *= 2 * t * t / (2 * k + 1); sum += term; }
    return 2 / Math.sqrt(Math.PI) * Math.exp(-t * t) * sum;
  };
  const sigmoid = (t) => 1 / (1 + Math.exp(-t));
  const softplus = (t) => Math.max(t, 0) + Math.log1p(Math.exp(-Math.abs(t)));
  const curves = [  /* in the order of `encoders.curves.layer.Curve`, after BENT */
    null, sigmoid, Math.tanh, softplus, (t) => t > 0 ? t : Math.expm1(t),
    (t) => 1.05070102214813232421875 * (t > 0 ? t : 1.67326319217681884765625 * Math.expm1(t)),
    (t) => t * sigmoid(t), (t) => t * (1 + erf(t / Math.SQRT2)) / 2,
    (t) => t * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (t + 0.044715 * t ** 3))) / 2,
    (t) => t * Math.tanh(softplus(t)), (t) => t * Math.min(Math.max(t / 6 + 0.5, 0), 1),
    (t) => t * t,
  ];
  const numbers = model && Object.fromEntries(Object.entries(model.numbers).map(([name, text]) => [name, array(text)]));
  /* Products are differences of squares that no runtime stores, and may be far smaller than these: float64 throughout. */
  const squares = model && model.kind === "network" && model.layers.some(({ smooth }, k) => smooth && numbers[`curve${k}`].includes(curves.length - 1));
  const stored = squares ? (t) => t : Math.fround, Stored = squares ? Float64Array : Float32Array;
  const network = (x) => {
    model.layers.forEach(({ inputs, outputs, smooth }, k) => {
      const [weight, bias, slope, curve] = ["weight", "bias", "slope", "curve"].map((name) => numbers[name + k]);
      const y = new Stored(outputs);
      for (let i = 0; i < outputs; i++) {
        let sum = bias[i];
        for (let j = 0; j < inputs; j++) sum += weight[i * inputs + j] * x[j];
        const a = stored(sum);
        y[i] = smooth && curve[i] ? curves[curve[i]](a) : a > 0 ? a : slope[i] * a;
      }
      x = y;
    });
    return x;
  };
  const trees = (x) => {
    const { root, column, threshold, left, right, missing_left, value, base } = numbers;
    const sums = Float64Array.from(base);
    for (let node of root) {
      while (column[node] >= 0) {
        const v = x[column[node]];
        node = (Number.isNaN(v) ? missing_left[node] : v <= threshold[node]) ? left[node] : right[node];
      }
      for (let m = 0; m < sums.length; m++) sums[m] += value[node * sums.length + m];
    }
    return Float32Array.from(sums);
  };
  const mean = (x) => {
    const { lines, squares, chances, score, logistic, shift, scale, weight, added } = numbers;
    const f = Array.from(trees(x), (v, k) => {
      const times = (numbers, power, v) => numbers.length ? x.reduce((a, one, j) => a + numbers[k * x.length + j] * one ** power, v) : v;
      const sum = times(squares, 2, times(lines, 1, v));
      return chances[k] ? sigmoid(sum) : sum;
    });
    const parts = weight.map((w, k) => {
      const moved = scale[k] * (f[score[k]] - shift[k]);
      return w * (logistic[k] ? sigmoid(moved) : Math.min(Math.max(moved, 0), 1));
    });
    return Float32Array.of([...added, ...parts].reduce((a, b) => a + b));
  };
  const forward = (x) => ({ trees, mean, network })[model.kind](x);

  /* The schema */
  const columns = (raw) => {
    const x = new Float32Array(features.reduce((n, f) => n + f.width, 0));
    features.forEach((f, v) => { if (f.one_hot) x[f.start + raw[v]] = 1; else x[f.start] = (raw[v] - f.offset) / f.scale; });
    return x;
  };
  const illegal = (raw) => {  /* why nobody can be so; null: somebody can */
    for (const [v, f] of features.entries()) {
      if (Number.isNaN(raw[v])) return `${f.name} has no value`;
      if (!(raw[v] >= f.low && raw[v] <= f.high)) return `${f.name} must be ${f.low} to ${f.high}`;
      if (f.integer && !Number.isInteger(raw[v])) return `${f.name} must be a whole number`;
    }
    const met = known.forbidden.find(({ ends }) => Object.entries(ends).every(([v, [low, high]]) =>
      (low === null || raw[v] >= low) && (high === null || raw[v] <= high)));
    return met ? `${met.name} of the schema forbids it` : null;
  };
  const compared = { ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b };
  const judged = (f) => {  /* the quantity, the decision, and whether float32 cannot be trusted with it */
    const classes = f.length === 1 ? [0, f[0]] : [...f], most = Math.max(...classes);
    const odds = classes.map((v) => Math.exp(v - most)), all = odds.reduce((a, b) => a + b);
    const two = f.length === 1;
    const of = (values) => output.group.reduce((sum, k) => sum + values[k], 0);
    const shown = output.value ? f[0] : two ? (output.shares ? Math.min(Math.max(f[0] + 0.5, 0), 1) : sigmoid(f[0]))
      : output.shares ? of([...f]) : of(odds.map((v) => v / all));
    const rivals = classes.filter((_, k) => k !== classes.indexOf(most));
    const gap = output.operator ? Math.abs(f[0] - output.at) : most - Math.max(...rivals);
    const good = output.operator ? compared[output.operator](f[0], output.at) : output.classes.includes(classes.indexOf(most));
    return { shown, good, close: gap <= 1e-5 * (1 + Math.abs(most)) };
  };
  /* For tests and the curious: rows of network columns, and of raw values, to outputs. */
  one("what-if").outputs = (rows) => rows.map((row) => [...forward(Float32Array.from(row, (v) => v === null ? NaN : v))]);
  one("what-if").answers = (rows) => rows.map((raw) => ({ ...judged(forward(columns(raw))), illegal: illegal(raw) }));

  /* The person */
  const words = (v, value) => features[v].categories ? features[v].categories[value]
    : `${value.toLocaleString("en", { maximumSignificantDigits: 7 })}${features[v].unit ? ` ${features[v].unit}` : ""}`;
  const text = (p) => output.value ? p.toPrecision(6) : p > 0 && p < 0.0005 || p < 1 && p > 0.9995 ? p.toPrecision(7) : p.toFixed(3);
  const row = (table, cells, marked) => {
    const line = table.tBodies[0].insertRow();
    if (marked) line.className = marked;
    cells.forEach((content, k) => {
      const cell = document.createElement(k === 0 ? "th" : "td");
      if (k === 0) cell.scope = "row";
      if (table.tHead.rows[0].cells[k].classList.contains("n")) cell.className = "n";
      cell.textContent = content;
      line.append(cell);
    });
  };
  const decided = ({ good, close }) => (good ? known.favourable : known.unfavourable) + (close ? " (too close to the threshold to be sure)" : "");
  const MANY = 12, SWEPT = 200;
  const values = (v) => {  /* the legal values of a feature, evenly spaced where there are many */
    const { low, high, integer } = features[v];
    const count = integer ? high - low + 1 : Infinity;
    if (count <= SWEPT) return Array.from({ length: count }, (_, k) => low + k);
    return Array.from({ length: SWEPT }, (_, k) => {
      const at = low + (high - low) * k / (SWEPT - 1);
      return integer ? Math.round(at) : at;
    });
  };
  const person = () => features.map((_, v) => { const { value } = one(`wi-${v}`); return value === "" ? NaN : Number(value); });
  const alike = (raw, v) => {  /* rows of the table for one sensitive feature, and what the sentence says */
    const table = one("person-table"), own = judged(forward(columns(raw))), name = features[v].name;
    const all = values(v).concat(raw[v]).filter((value, k, list) => list.indexOf(value) === k).sort((a, b) => a - b).map((value) => {
      const other = Object.assign([...raw], { [v]: value }), why = value === raw[v] ? null : illegal(other);
      return { value, why, ...(why ? {} : judged(forward(columns(other)))) };
    });
    const legal = all.filter((one) => !one.why), flips = legal.filter((one) => one.good !== own.good);
    const low = legal.reduce((a, b) => b.shown < a.shown ? b : a), high = legal.reduce((a, b) => b.shown > a.shown ? b : a);
    const few = all.length <= MANY ? all : all.filter((one) => one === low || one === high || one.value === raw[v] || one === flips[0]);
    few.forEach((entry, k) => {
      const mark = [entry.value === raw[v] ? "as is" : "", few === all ? "" : entry === low ? "lowest" : entry === high ? "highest" : ""].filter(Boolean);
      row(table, [name, words(v, entry.value) + (mark.length ? ` (${mark.join(", ")})` : ""), entry.why ? "–" : text(entry.shown),
        entry.why ? `nobody can be so: ${entry.why}` : decided(entry)], entry.value === raw[v] ? "own" : entry.why ? "" : entry.good !== own.good ? "other" : "");
    });
    const some = all.length > MANY && (!features[v].integer || features[v].high - features[v].low >= SWEPT) ? ` of ${all.length} tried` : "";
    return flips.length ? `with another value of ${name} it changes (${flips.length} other value${flips.length > 1 ? "s" : ""}${some}, for example ${words(v, flips[0].value)})`
      : `with another value of ${name} it stays the same${some ? `, at all${some}` : ""}`;
  };
  const held = (raw, own) => {
    const found = known.held.filter(({ lower, upper }) => raw.every((value, v) => value >= lower[v] && value <= upper[v]));
    one("person-held").replaceChildren(...found.map(({ text: said, feature, far }) => {
      const line = document.createElement("p");
      line.className = "note";
      const low = Math.max(0, Math.floor((own.shown - far) * 1e4 - 1) / 1e4), high = Math.min(1, Math.ceil((own.shown + far) * 1e4 + 1) / 1e4);
      const room = far === null || (low === 0 && high === 1) ? ""
        : ` So whatever the ${features[feature].name}, this person's is from ${low.toFixed(4)} to ${high.toFixed(4)}.`;
      line.textContent = `Proved, and accepted by the separate checker in the audit: ${said}${room}`;
      return line;
    }));
  };
  const show = () => {
    const raw = person(), why = illegal(raw), said = one("person-said");
    one("person-table").tBodies[0].replaceChildren();
    one("person-held").replaceChildren();
    one("person-table").parentNode.hidden = Boolean(why);
    said.classList.toggle("bad", Boolean(why));
    if (why) { said.textContent = `Not a legal person: ${why}. Nothing is computed.`; return; }
    const own = judged(forward(columns(raw)));
    held(raw, own);
    said.textContent = `${output.quantity[0].toUpperCase()}${output.quantity.slice(1)} ${text(own.shown)}: ${decided(own)}. The decision: ${known.protected.map((v) => alike(raw, v)).join("; ")}.`;
  };
  const set = (raw) => {
    raw.forEach((value, v) => { one(`wi-${v}`).value = value; const slide = one(`wi-${v}-slide`); if (slide) slide.value = value; });
    show();
  };
  if (model) {
    features.forEach((f, v) => {
      const field = one(`wi-${v}`), slide = one(`wi-${v}-slide`);
      field.addEventListener("input", () => { if (slide) slide.value = field.value; show(); });
      if (slide) slide.addEventListener("input", () => { field.value = slide.value; show(); });
    });
    one("person").addEventListener("submit", (event) => event.preventDefault());
    one("person-start").addEventListener("click", () => set(known.start));
    for (const line of document.querySelectorAll("#witness-table tr[data-person]")) {
      const raw = known.people[Number(line.dataset.person)];
      if (!raw) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "try";
      button.textContent = "What if";
      button.setAttribute("aria-label", `What if: counterexample ${Number(line.dataset.person) + 1}`);
      button.addEventListener("click", () => { set(raw); one("what-if").scrollIntoView(); one("what-if").focus({ preventScroll: true }); });
      line.cells[0].append(button);
    }
    set(known.start);
    one("person-tool").hidden = false;
  }

  /* The threshold: counts above each edge, by group */
  if (!scores) return;
  const slider = one("threshold"), Z = 1.959963984540054;
  const wilson = (k, n, z) => {  /* the ends of the interval of a share */
    const middle = (k + z * z / 2) / (n + z * z), half = z / (n + z * z) * Math.sqrt(k * (n - k) / n + z * z / 4);
    return [k ? middle - half : 0, k < n ? middle + half : 1];
  };
  const ends = (one, best, z) => {  /* of the interval of a ratio of rates: MOVER-R, as in the table above */
    const p = one.k / one.n, q = best.k / best.n, own = wilson(one.k, one.n, z), its = wilson(best.k, best.n, z);
    const end = (mine, other, upper) => {
      const a = mine * (2 * p - mine), b = other * (2 * q - other), root = Math.sqrt(Math.max((p * q) ** 2 - a * b, 0));
      return upper ? (p * q + root) / b : p ? a / (p * q + root) : 0;
    };
    return [end(own[0], its[1], false), end(own[1], its[0], true)];
  };
  const said = (ratio) => {  /* on which side of 0.8 it lies shows */
    let digits = 3;
    while (digits < 16 && (Number(ratio.toFixed(digits)) < 0.8) !== (ratio < 0.8)) digits += 1;
    return ratio.toFixed(digits);
  };
  const percent = (p) => p > 0 && p < 0.0005 ? "<0.1%" : p < 1 && p >= 0.9995 ? ">99.9%" : `${(100 * p).toFixed(1)}%`;
  const count = ({ bins, people }, edge) => {
    const n = people.reduce((a, b) => a + b), above = people.reduce((sum, k, at) => sum + (bins[at] > edge ? k : 0), 0);
    return { n, k: scores.above ? above : n - above };
  };
  const counted = (edge) => scores.histograms.map((one) => ({ feature: one.feature, group: one.group, ...count(one, edge) }));
  one("what-if").counted = counted;
  const move = () => {
    const edge = Number(slider.value), groups = counted(edge), table = one("threshold-table"), fails = [];
    table.tBodies[0].replaceChildren();
    for (const feature of new Set(groups.map((one) => one.feature))) {
      const own = groups.filter((one) => one.feature === feature).sort((a, b) => b.n - a.n), ranked = own.filter((one) => one.n >= known.small);
      const best = ranked.length > 1 ? ranked.reduce((a, b) => b.k / b.n > a.k / a.n ? b : a) : { k: 0 };
      own.forEach((one, place) => {
        const { group, n, k } = one, ratio = best.k && n >= known.small ? k * best.n / (n * best.k) : null;
        const [low, high] = ratio !== null && one !== best ? ends(one, best, known.z[feature]) : [ratio, ratio], fail = ratio !== null && ratio < 0.8;
        const chance = ratio !== null && (low < 0.8) !== (high < 0.8) ? ", uncertain" : "";
        if (fail) fails.push(`${feature} ${group} (n = ${n.toLocaleString("en")}${chance})`);
        row(table, [feature, group, n.toLocaleString("en"), percent(k / n), wilson(k, n, Z).map(percent).join(" to "),
          ratio === null ? "–" : said(ratio) + (one === best ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`),
          ratio === null ? "not compared" : (fail ? "fails" : "passes") + chance], fail ? "other" : "");
      });
    }
    const all = groups.filter((one) => one.feature === groups[0].feature), sum = (key) => all.reduce((total, one) => total + one[key], 0);
    const at = scores.edges[edge], whose = edge === scores.own ? " (the model's own threshold)" : "";
    const words = `${scores.quantity} ${scores.above ? "above" : "up to"} ${at.toLocaleString("en", { maximumSignificantDigits: 6 })}${whose}`;
    slider.setAttribute("aria-valuetext", words);
    one("threshold-said").textContent = `${known.favourable} with a ${words}: ${percent(sum("k") / sum("n"))} of ${sum("n").toLocaleString("en")} people. `
      + (fails.length ? `Below four fifths of the highest rate: ${fails.join(", ")}.` : "No compared group is below four fifths of the highest rate.");
  };
  slider.addEventListener("input", move);
  one("threshold-own").addEventListener("click", () => { slider.value = scores.own; move(); });
  slider.value = scores.own;
  move();
  one("threshold-tool").hidden = false;
})();
