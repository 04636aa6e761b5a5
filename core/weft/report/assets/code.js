// The generated program beside the user's lines, linked both ways.

const FOLDED = 24;

class CodeView {
  constructor(report) {
    this.report = report;
    const { text, locations, lines } = data.source;
    this.lines = text ? text.split("\n") : [];
    this.whole = lines;
    this.where = [];
    for (const [count, here] of locations) {
      for (let n = 0; n < count; n++) this.where.push(here);
    }
    this.generated = new Map();
    this.where.forEach((here, number) => here.forEach((location) => {
      if (!this.generated.has(location)) this.generated.set(location, []);
      this.generated.get(location).push(number);
    }));
    this.userRows = new Map();
    this.rows = new Map();
  }

  made() {
    this.note = element("p", { class: "hint", "aria-live": "polite" },
      "Click a line to see what it was compiled to, or where it comes from.");
    this.left = element("div", { class: "listing", tabindex: 0, "aria-label": "Your lines" },
      data.files.map((file, number) => this.file(file, number)));
    this.right = element("div", { class: "listing", tabindex: 0, "aria-label": "Generated code" },
      this.listing());
    return element("div", { class: "code" },
      element("section", { class: "pane" }, element("h2", {}, "Your lines"), this.left),
      element("section", { class: "pane" }, element("h2", {}, "Generated code"), this.right),
      this.note);
  }

  file(file, number) {
    const made = new Map();
    data.locations.forEach(([each, line], location) => {
      if (each === number) made.set(line, location);
    });
    let before = null;
    const rows = file.lines.flatMap(([line, text]) => {
      const gap = before !== null && line > before + 1 ? [element("div", { class: "gap" }, "⋯")] : [];
      before = line;
      const location = made.get(line);
      const row = this.row(line, text, location !== undefined && (() => this.pick(location)));
      if (location !== undefined) {
        this.userRows.set(location, row);
        row.dataset.location = location;
      }
      return [...gap, row];
    });
    return element("div", { class: "file" }, element("h4", { title: file.path }, file.name), rows);
  }

  row(number, text, onclick) {
    return element("div", {
      class: onclick ? "row linked" : "row", tabindex: onclick ? 0 : undefined,
      role: onclick ? "button" : undefined, onclick: onclick || undefined,
      onkeydown: onclick && ((event) => event.key === "Enter" && onclick()),
    }, element("span", { class: "number" }, number), element("code", {}, text || " "));
  }

  /* The rows of the generated program; what comes from no line of the user's is folded if long. */
  listing() {
    const parts = [];
    let start = 0;
    const isLinked = (number) => (this.where[number] || []).length > 0;
    while (start < this.lines.length) {
      let end = start;
      while (end < this.lines.length && isLinked(end) === isLinked(start)) end++;
      const first = start;
      const rows = () => this.lines.slice(first, end).map((text, n) => this.line(first + n, text));
      if (!isLinked(start) && end - start > FOLDED) {
        const fold = button(`${counted(end - start, "line")} of helpers and glue`, () =>
          fold.replaceWith(...rows()), { class: "fold" });
        parts.push(fold);
      } else {
        parts.push(...rows());
      }
      start = end;
    }
    if (this.whole > this.lines.length) {
      parts.push(element("p", { class: "hint" },
        `${counted(this.whole - this.lines.length, "more line")}, which computation.source has`));
    }
    return parts.length ? parts : element("p", { class: "hint" }, "The backend shows no source.");
  }

  line(number, text) {
    const here = this.where[number] || [];
    const row = this.row(number + 1, text, here.length > 0 && (() => this.pickGenerated(number)));
    this.rows.set(number, row);
    return row;
  }

  /* Show what a line of the user's was compiled to. */
  pick(location) {
    const numbers = this.generated.get(location) || [];
    this.mark([location], numbers);
    this.scrollTo(this.right, this.rows.get(numbers[0]));
    this.scrollTo(this.left, this.userRows.get(location));
    const count = numbers.length ? counted(numbers.length, "generated line") : "no generated line";
    this.say(`${placeText(location)}: ${count} `, location);
  }

  /* Show where a generated line comes from. */
  pickGenerated(number) {
    const here = this.where[number];
    const same = here.flatMap((location) => this.generated.get(location));
    this.mark(here, here.length > 1 ? [number] : same);
    this.scrollTo(this.left, this.userRows.get(here[0]));
    this.say(`Generated line ${number + 1} computes ${here.map(placeText).join(", ")} `, here[0]);
  }

  say(text, location) {
    this.note.replaceChildren(text,
      button("Show in the graph", () => this.report.showLine(location), { class: "link" }));
  }

  mark(locations, numbers) {
    for (const row of [...this.userRows.values(), ...this.rows.values()]) {
      row.classList.remove("picked");
    }
    locations.forEach((each) => this.userRows.get(each)?.classList.add("picked"));
    numbers.forEach((each) => this.rows.get(each)?.classList.add("picked"));
  }

  scrollTo(pane, row) {
    if (!row) return;
    const top = row.offsetTop - pane.offsetTop;
    if (top < pane.scrollTop || top > pane.scrollTop + pane.clientHeight - 40) {
      pane.scrollTop = Math.max(top - pane.clientHeight / 3, 0);
    }
  }
}
