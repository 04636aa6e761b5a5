// The profile of a call: a timeline, and a table that sorts.

class ProfileView {
  constructor(report) {
    this.report = report;
    this.profile = data.profile;
    this.picked = null;
  }

  made() {
    const { profile } = this;
    this.chart = element("div", { class: "chart" });
    this.about = element("div", { class: "about", "aria-live": "polite" });
    const columns = this.columns();
    this.table = sortedTable(columns, profile.rows, {
      by: columns.findIndex(({ title }) => title === "time"), label: "Kernels", onpick: (row, place) => this.pick(place),
    });
    const root = element("div", { class: "profile" },
      element("div", { class: "cards" },
        this.card("a call", secondsText(profile.wall), `mean of the faster half of ${profile.repeat}`),
        this.card("without time stamps", secondsText(profile.ordinary), "the ordinary program"),
        this.card("kernels and libraries", secondsText(profile.device_time), shareText(profile.device_time)),
        this.card("host", secondsText(profile.host), shareText(profile.host)),
        profile.rates.copy ? this.card("a copy reaches", `${threeDigits(profile.rates.copy / 1e9)} GB/s`, "measured on this machine") : null,
        profile.rates.matmul ? this.card("a product reaches", `${threeDigits(profile.rates.matmul / 1e9)} GFLOP/s`, "measured on this machine") : null),
      element("section", { class: "block" }, element("h3", {}, `One call, of ${secondsText(profile.call)}`), this.chart, this.about),
      element("section", { class: "block" }, element("h3", {}, "Kernels"),
        element("div", { class: "wide" }, this.table)));
    return root;
  }

  begin() {
    this.draw();
  }

  resized() {
    this.draw();
    if (this.picked !== null) this.pick(this.picked);
  }

  card(title, value, note) {
    return element("div", { class: "card" },
      element("span", {}, title), element("strong", {}, value), element("small", {}, note));
  }

  columns() {
    const { wall, rates } = this.profile;
    const speed = (row, work) => row.seconds ? row[work] / row.seconds : 0;
    const ofCopy = (row) => speed(row, "bytes") / copyOf(row.bytes / row.calls);
    const ofProduct = (row) => speed(row, "flops") / (rates.matmul || Infinity);
    const copyOf = (bytes) => Math.max(...rates.copies.filter(([size]) => size >= bytes)
      .map(([, rate]) => rate), rates.copy || 0) || Infinity;
    const percent = (value) => value > 1 ? "> 100 %" : value ? `${Math.round(100 * value)} %` : "";
    const billions = (value) => value ? threeDigits(value / 1e9) : "";
    const columns = [
      { title: "kernel", text: true, value: rowTitle },
      ...(data.plans ? [{ title: "scope", text: true, class: "mono", value: (row) => opOf(row).scope || "" }] : []),
      { title: "line", text: true, class: "mono", value: rowLine },
      { title: "calls", value: (row) => row.calls, show: (row) => `${Number(row.calls.toPrecision(4))}` },
      { title: "time", value: (row) => row.seconds, show: (row) => secondsText(row.seconds) },
      { title: "of call", value: (row) => row.seconds / wall, show: (row) => bar(row.seconds / wall) },
      { title: "GB/s", hint: "bytes read and written over the time", value: (row) => speed(row, "bytes"), show: (row) => billions(speed(row, "bytes")) },
      { title: "of copy", hint: "beside the rate of a copy of as many bytes", value: ofCopy, show: (row) => percent(ofCopy(row)) },
      { title: "GFLOP/s", hint: "arithmetic operations over the time", value: (row) => speed(row, "flops"), show: (row) => billions(speed(row, "flops")) },
      { title: "of product", hint: "beside the rate of a product of float32 matrices", value: ofProduct, show: (row) => percent(ofProduct(row)) },
    ];
    return columns;
  }

  draw() {
    const { events, rows, call, device } = this.profile;
    const width = Math.max(this.chart.clientWidth || 960, 480);
    const left = 138, right = 16, lane = 34, top = 8, height = top + 3 * lane + 30;
    const x0 = d3.scaleLinear([0, call], [left, width - right]);
    const lanes = [["call", 0], ["host work", 1], [shortened(device, 20), 2]];
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, class: "timeline",
      role: "img", "aria-label": "The launches of one call over time",
    });
    const clip = shape("clipPath", { id: "lanes" },
      shape("rect", { x: left, y: 0, width: width - left - right, height }));
    const bars = shape("g", {}), axis = shape("g", { class: "axis", transform: `translate(0,${height - 26})` });
    svg.append(shape("defs", {}, clip), ...lanes.map(([name, number]) =>
      shape("text", { class: "lane", x: left - 8, y: top + lane * number + 20 }, name)),
    shape("g", { "clip-path": "url(#lanes)" }, bars), axis);
    const items = [
      { start: 0, end: call, number: 0, name: "call", kind: "whole", row: -1 },
      ...events.map(([row, start, stop]) => ({
        start, end: stop, row, number: rows[row].kind === "host" ? 1 : 2, name: rows[row].name,
        kind: `${rows[row].kind} shade${row % 6}`,
      })),
    ];
    this.bars = items.slice(0, 6000).map((item) => {
      const rect = shape("rect", { y: top + lane * item.number + 3, height: lane - 8, rx: 2 });
      const label = shape("text", { y: top + lane * item.number + 20 });
      const made = shape("g", {
        class: `event ${item.kind}`, "data-row": item.row,
        onclick: () => item.row >= 0 && this.pick(item.row),
      }, rect, label, shape("title", {}, `${item.name}\n${secondsText(item.end - item.start)}`));
      bars.append(made);
      return { ...item, made, rect, label };
    });
    const show = (x) => {
      for (const { start, end: stop, name, rect, label } of this.bars) {
        const from = x(start), size = Math.max(x(stop) - from, 0.75);
        rect.setAttribute("x", from);
        rect.setAttribute("width", size);
        const begin = Math.max(from, left) + 4, room = Math.min(x(stop), width - right) - begin - 4;
        label.setAttribute("x", begin);
        label.textContent = room > 24 ? shortened(name, Math.max(Math.floor(room / 6.4), 1)) : "";
      }
      d3.select(axis).call(d3.axisBottom(x).ticks(8).tickFormat((value) => value ? secondsText(value) : "0"));
    };
    d3.select(svg).call(d3.zoom().scaleExtent([1, 2000])
      .extent([[left, 0], [width - right, height]])
      .translateExtent([[left, 0], [width - right, height]])
      .filter((event) => event.type !== "wheel" || event.ctrlKey || event.shiftKey)
      .on("zoom", ({ transform }) => show(transform.rescaleX(x0))));
    show(x0);
    this.chart.replaceChildren(svg, element("p", { class: "hint" },
      "Ctrl or Shift with the wheel zooms, dragging moves, a click selects a kernel."));
  }

  pick(place) {
    this.picked = place;
    const row = this.profile.rows[place];
    for (const each of this.table.querySelectorAll("tbody tr")) {
      each.classList.toggle("picked", Number(each.dataset.row) === place);
    }
    for (const { made, row: own } of this.bars) made.classList.toggle("picked", own === place);
    const steps = data.plans ? row.steps : [];
    this.about.replaceChildren(titled(rowTitle(row), facts([
      ["kind", row.kind],
      ["scope", opOf(row).scope],
      ["time", `${secondsText(row.seconds)}, ${shareText(row.seconds)}`],
      ["launches", `${Number(row.calls.toPrecision(4))}`],
      ["bytes", bytesText(row.bytes)],
      ["operations", row.flops ? threeDigits(row.flops) : "none"],
      ["ops", shortened(row.ops.map((name) => name.replace(/Op$/, "")).join(", "), 240)],
      ["steps", steps.length ? element("span", { class: "several" }, steps.slice(0, 20).map((each) => this.step(each))) : ""],
    ]), element("div", { class: "lines" }, linesOf(row).map(([file, line, text], number) => {
      const shown = [element("span", { class: "place" }, `${base(file)}:${line}`), element("code", {}, text)];
      return data.plans
        ? button(shown, () => this.report.showCode(row.locations[number]), { class: "userline" })
        : element("div", { class: "userline" }, shown);
    }))));
  }

  step([number, step]) {
    const plan = data.plans[number], place = plan.steps[step];
    const graph = data.graphs[plan.graph];
    if (place < 0 || !graph.ops) return element("span", {}, `step ${step}`);
    return button(`${step}: ${opCalled(plan.graph, place)}`, () =>
      this.report.showOp(plan.graph, place), { class: "link" });
  }
}

function base(path) {
  return path.split(/[\\/]/).pop();
}

/* The op of a row's first step, where it is known. */
function opOf(row) {
  const [first] = row.steps, plan = first && data.plans && data.plans[first[0]];
  const ops = plan && data.graphs[plan.graph].ops;
  return (ops && ops[plan.steps[first[1]]]) || {};
}

function rowTitle(row) {
  return (opOf(row).of >= 0 ? "∇ " : "") + row.name;
}

/* The user's lines of a row: path, number and text. A report has them in its locations. */
function linesOf(row) {
  return row.lines || row.locations.map((location) => {
    const [file, line] = data.locations[location];
    return [data.files[file].path, line, lineText(location)];
  });
}

function rowLine(row) {
  const [first, ...more] = linesOf(row);
  return first ? `${base(first[0])}:${first[1]}` + (more.length ? ` +${more.length}` : "") : "";
}

function bar(share) {
  const width = Math.max(Math.min(100 * share, 100), 0);
  return element("span", { class: "share" },
    element("i", { style: `width:${width.toFixed(1)}%` }),
    element("span", {}, `${(100 * share).toFixed(1)} %`));
}
