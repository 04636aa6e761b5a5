// The plan of memory: the arena over time, what is live at a step, and why.

const MEMORY = { left: 76, right: 20, top: 16, bottom: 34, height: 400 };

class MemoryView {
  constructor(report) {
    this.report = report;
    this.number = 0;
  }

  made() {
    this.chart = element("div", { class: "chart" });
    this.about = element("div", { class: "about", "aria-live": "polite" });
    this.states = element("div", {});
    const choice = data.plans.length < 2 ? [] : element("label", { class: "choice" }, "Graph ",
      element("select", { onchange: (event) => this.show(Number(event.target.value)) },
        data.plans.map((plan, number) =>
          element("option", { value: number }, data.graphs[plan.graph].name))));
    this.root = element("div", { class: "memory" },
      element("section", { class: "main" }, choice, this.chart, this.states), this.about);
    return this.root;
  }

  begin() {
    this.show(0);
  }

  resized() {
    this.draw();
  }

  show(number) {
    this.number = number;
    this.plan = data.plans[number];
    this.peak = Math.max(d3.maxIndex(this.plan.live), 0);
    this.picked = null;
    this.step = this.peak;
    this.draw();
    this.list();
    this.states.replaceChildren(...this.stateTable());
  }

  get width() {
    return Math.max((this.chart.clientWidth || 890) - 30, 480);
  }

  draw() {
    const { plan } = this, { left, right, top, bottom, height } = MEMORY;
    if (!plan.steps.length) {
      this.chart.replaceChildren(element("p", { class: "hint" },
        "The plan has no steps: nothing is computed, so there is no arena."));
      return;
    }
    const width = this.width;
    const x = d3.scaleLinear([0, plan.steps.length], [left, width - right]);
    const most = Math.max(plan.arena, plan.limit || 0, 1);
    const y = d3.scaleLinear([0, most], [height - bottom, top]);
    Object.assign(this, { x, y });
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, class: "arena", tabindex: 0,
      role: "application", "aria-label": "The arena over time. Arrow keys choose the step.",
      onkeydown: (event) => this.key(event),
      onclick: (event) => {
        const at = Math.floor(x.invert(d3.pointer(event, svg)[0]));
        this.pickStep(Math.min(Math.max(at, 0), plan.steps.length - 1));
      },
    });
    const axis = (scale, transform) => {
      const made = shape("g", { class: "axis", transform });
      d3.select(made).call(scale);
      svg.append(made);
    };
    axis(d3.axisLeft(y).ticks(6).tickFormat(bytesText).tickSize(left + right - width),
      `translate(${left},0)`);
    axis(d3.axisBottom(x).ticks(Math.min(plan.steps.length, 12)).tickFormat(d3.format("d")),
      `translate(0,${height - bottom})`);
    svg.append(shape("text", { class: "unit", x: width - right, y: height - 4 }, "step"));
    this.rects = plan.blocks.map((block, index) => {
      const box = shape("rect", {
        class: `block ${classOf(block.workspace ? "workspace" : block.kind)}`, "data-block": index,
        x: x(block.first), y: y(block.offset + block.bytes),
        width: Math.max(x(block.last + 1) - x(block.first) - 0.6, 0.6),
        height: Math.max(y(block.offset) - y(block.offset + block.bytes) - 0.6, 0.6),
        onclick: (event) => { event.stopPropagation(); this.pick(index); },
      }, shape("title", {}, `${this.maker(block)}\n${typeText(block.type)}, ` +
        `${bytesText(block.bytes)}, steps ${block.first} to ${block.last}`));
      svg.append(box);
      return box;
    });
    const corners = plan.live.flatMap((live, step) => [[x(step), y(live)], [x(step + 1), y(live)]]);
    svg.append(shape("polyline", { class: "live", points: corners.join(" ") }));
    if (plan.limit) {
      svg.append(shape("line", {
        class: "limit", x1: left, x2: width - right, y1: y(plan.limit), y2: y(plan.limit),
      }));
    }
    this.cursor = shape("rect", { class: "cursor", y: top, height: height - bottom - top });
    svg.append(this.cursor);
    this.chart.replaceChildren(this.legend(), svg);
    this.mark();
  }

  legend() {
    const shown = new Set(this.plan.blocks.map((each) => each.workspace ? "workspace" : each.kind));
    return element("p", { class: "legend" }, CLASSES.filter((name) => shown.has(name)).map((name) =>
      element("span", {}, element("i", { class: `swatch ${classOf(name)}` }), name)),
    element("span", {}, element("i", { class: "stroke" }), "live bytes"));
  }

  maker(block) {
    return this.stepName(block.step);
  }

  stepName(step) {
    const place = this.plan.steps[step];
    const { graph } = this.plan;
    return place < 0 || !data.graphs[graph].ops ? `step ${step}` : opCalled(graph, place);
  }

  stepLink(step) {
    const place = this.plan.steps[step];
    const name = `${step}: ${this.stepName(step)}`;
    if (place < 0 || !data.graphs[this.plan.graph].ops) return element("span", {}, name);
    return button(name, () => this.report.showOp(this.plan.graph, place), { class: "link" });
  }

  pickStep(step) {
    this.step = step;
    this.picked = null;
    this.mark();
    this.list();
  }

  pick(index) {
    this.picked = index;
    const block = this.plan.blocks[index];
    if (this.step < block.first || this.step > block.last) this.step = block.first;
    this.mark();
    this.list();
  }

  mark() {
    if (!this.cursor) return;
    const { x, step } = this;
    this.cursor.setAttribute("x", x(step));
    this.cursor.setAttribute("width", Math.max(x(step + 1) - x(step), 1.5));
    this.rects.forEach((box, index) => box.classList.toggle("picked", index === this.picked));
  }

  list() {
    const { plan, step } = this;
    const live = plan.blocks.map((block, index) => ({ ...block, index }))
      .filter((block) => block.first <= step && step <= block.last);
    const peak = button(`Step ${this.peak} is the peak`, () => this.pickStep(this.peak),
      { class: "link" });
    this.about.replaceChildren(
      ...(this.picked === null ? [] : [this.block(plan.blocks[this.picked])]),
      titled("Arena", facts([
        ["size", bytesText(plan.arena)],
        ["most live", bytesText(plan.most)],
        ["in the order as written", bytesText(plan.written)],
        ["limit", plan.limit && bytesText(plan.limit)],
        ["constants", plan.constants ? bytesText(plan.constants) : ""],
        ["not listed", plan.left_out ? counted(plan.left_out, "small block") : ""],
      ])),
      ...(plan.steps.length ? [titled(step === this.peak ? `At the peak, step ${step}` : `At step ${step}`,
        element("p", {}, this.stepLink(step)),
        element("p", { class: "hint" }, `${bytesText(plan.live[step] || 0)} live. `, step === this.peak ? "" : peak),
        live.length ? sortedTable([
          { title: "made by", text: true, value: (each) => this.maker(each) },
          { title: "size", value: (each) => each.bytes, show: (each) => bytesText(each.bytes) },
          { title: "steps", value: (each) => each.last - each.first + 1 },
        ], live, {
          by: 1, label: "Live blocks", onpick: (each) => this.pick(each.index),
          row: (each) => each.index === this.picked ? "picked" : "",
        }) : element("p", { class: "hint" }, "Nothing is live in the arena."))] : []),
    );
  }

  block(block) {
    const readers = block.readers || [];
    const last = readers[readers.length - 1];
    let why;
    if (block.workspace) why = "scratch memory of this step alone";
    else if (block.overwritten !== undefined) {
      why = element("span", {}, "until it is overwritten in place by ", this.stepLink(block.overwritten));
    } else if (last !== undefined) {
      why = element("span", {}, "until its last reader, ", this.stepLink(last));
    } else why = "nothing reads it";
    const place = this.plan.steps[block.step];
    const graph = data.graphs[this.plan.graph];
    const op = place >= 0 && graph.ops ? graph.ops[place] : null;
    return titled(block.workspace ? "Workspace" : "Block of memory",
      facts([
        ["made by", this.stepLink(block.step)],
        ["type", typeText(block.type)],
        ["size", bytesText(block.bytes)],
        ["place", `bytes ${block.offset} to ${block.offset + block.bytes}`],
        ["lives", `steps ${block.first} to ${block.last}`],
        ["why", why],
        ["read by", readers.length ? element("span", { class: "several" }, readers.slice(0, 12).map((each) => this.stepLink(each))) : ""],
        ["at the peak", block.first <= this.peak && this.peak <= block.last ? "yes" : "no"],
      ]),
      op ? this.report.linesOf(op) : null);
  }

  stateTable() {
    if (!this.plan.states.length) return [];
    const steps = (numbers) => numbers.length ? shortened(numbers.join(", "), 40) : "–";
    return [titled("States", sortedTable([
      { title: "state", text: true, value: (state) => state.name },
      { title: "type", text: true, class: "mono", value: (state) => typeText(state.type) },
      { title: "size", value: (state) => state.bytes, show: (state) => bytesText(state.bytes) },
      { title: "read by steps", text: true, value: (state) => steps(state.readers) },
      { title: "written by steps", text: true, value: (state) => steps(state.writers) },
    ], this.plan.states, { by: 2, label: "States" }))];
  }

  showBlock(plan, index) {
    if (plan !== this.number) this.show(plan);
    this.pick(index);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.pickStep(Math.min(Math.max(this.step + step, 0), this.plan.steps.length - 1));
  }
}
