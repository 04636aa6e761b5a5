// The page as a whole: its head, its tabs, the search, and what is selected.

class GraphView {
  constructor(report) {
    this.report = report;
    this.drawings = new Map();
    this.pipeline = 0;
    this.identity = null; // that of the op which is selected in every stage that has it
  }

  made() {
    this.stageList = element("div", { class: "stages", role: "listbox", "aria-label": "Stages", tabindex: 0, onkeydown: (event) => this.key(event) });
    this.changes = element("div", { class: "changes" });
    this.canvas = element("div", { class: "canvas" });
    this.about = element("div", { class: "about", "aria-live": "polite" });
    const choice = pipelines.length < 2 ? [] : element("label", { class: "choice" }, "Graph ",
      element("select", { onchange: (event) => this.choose(Number(event.target.value)) },
        pipelines.map((pipeline, number) => element("option", { value: number }, pipeline.name))));
    this.choice = pipelines.length < 2 ? null : choice.querySelector("select");
    const tools = element("div", { class: "tools" },
      button("+", () => this.zoom(1.3), { title: "Zoom in (+)", "aria-label": "Zoom in" }),
      button("−", () => this.zoom(1 / 1.3), { title: "Zoom out (-)", "aria-label": "Zoom out" }),
      button("Fit", () => this.drawing && this.drawing.fit(), { title: "Show all (0)" }),
      button("Open all", () => this.drawing && this.drawing.openAll(true)),
      button("Close all", () => this.drawing && this.drawing.openAll(false)));
    this.root = element("div", { class: "graphs" },
      element("aside", { class: "side" }, choice, this.stageList, this.changes),
      element("section", { class: "stagebox" }, this.canvas, tools, this.legend()), this.about);
    return this.root;
  }

  /* Called once the view is in the page, where sizes can be measured. */
  begin() {
    this.choose(0);
  }

  legend() {
    return element("p", { class: "legend" }, CLASSES.filter((name) => name !== "workspace").map((name) =>
      element("span", {}, element("i", { class: `swatch ${classOf(name)}` }), name)),
    element("span", {}, element("i", { class: "swatch added" }), "added by the pass"),
    element("span", {}, "∇ part of a gradient"));
  }

  choose(pipeline) {
    this.pipeline = pipeline;
    if (this.choice) this.choice.value = pipeline;
    this.stages = pipelines[pipeline].stages;
    this.stageList.replaceChildren(...this.stages.map((stage, number) => {
      const isSame = number > 0 && !stage.added && !stage.removed && stage.graph === this.stages[number - 1].graph;
      const numbers = stage.added || stage.removed
        ? element("span", { class: "delta" },
          stage.removed ? element("span", { class: "minus" }, `−${stage.removed}`) : null,
          stage.added ? element("span", { class: "plus" }, `+${stage.added}`) : null) : null;
      return element("button", {
        type: "button", role: "option", class: isSame ? "stage same" : "stage", tabindex: -1,
        onclick: () => this.show(number),
      }, element("span", { class: "name" }, stage.name), numbers,
      element("span", { class: "count" }, data.graphs[stage.graph].count.toLocaleString("en")));
    }));
    this.show(0);
  }

  show(number) {
    this.stage = number;
    const stage = this.stages[number];
    [...this.stageList.children].forEach((each, place) =>
      each.setAttribute("aria-selected", place === number));
    this.stageList.children[number].scrollIntoView({ block: "nearest" });
    const graph = data.graphs[stage.graph];
    this.root.classList.toggle("summed", !graph.ops);
    this.listChanges(stage);
    if (!graph.ops) {
      this.drawing = null;
      this.canvas.replaceChildren(this.summary(graph));
      this.report.overview(this.about, graph);
      return;
    }
    const isNew = !this.drawings.has(stage.graph);
    if (isNew) {
      this.drawings.set(stage.graph, new Drawing(stage.graph, { onpick: (node) => this.picked(node) }));
    }
    this.drawing = this.drawings.get(stage.graph);
    this.canvas.replaceChildren(this.drawing.svg, this.drawing.map);
    if (isNew) this.drawing.draw();
    const added = (stage.changes || []).flatMap((change) => change.added);
    this.drawing.mark(added);
    const { identity, drawing } = this;
    const place = (placesIn(stage.graph).get(identity) || []).find((each) => drawing.frame.nodes.has(each));
    if (place === undefined) {
      drawing.pick(null);
      drawing.fit(READABLE);
    } else {
      drawing.reveal(place);
    }
    this.identity = identity;
  }

  /* What stands for a graph that is too large to draw. */
  summary(graph) {
    const children = [element("p", {}, `${counted(graph.count, "op")}: too many to draw one by one. The table counts them by your lines.`)];
    if (graph.calls.length) {
      children.push(titled("Called graphs", sortedTable([
        { title: "graph", text: true, value: ([number]) => data.graphs[number].name },
        { title: "ops", value: ([number]) => data.graphs[number].count },
        { title: "calls", value: ([, count]) => count },
      ], graph.calls, { by: 2, label: "Called graphs" })));
    }
    children.push(titled("Source lines", sortedTable([
      { title: "line", text: true, class: "mono", value: (each) => placeText(each.line) },
      { title: "source", text: true, class: "mono", value: (each) => lineText(each.line) },
      { title: "ops", value: (each) => each.count, show: (each) => each.count.toLocaleString("en") },
      { title: "of all", value: (each) => each.count / graph.count, show: (each) => bar(each.count / graph.count) },
      { title: "kinds", text: true, value: (each) => each.kinds.join(", ") },
    ], graph.lines.slice(0, 2000), { by: 2, label: "Ops by line", onpick: (each) => this.report.showCode(each.line) })));
    return element("div", { class: "summary" }, children);
  }

  listChanges(stage) {
    if (!stage.changes) {
      this.changes.replaceChildren();
      return;
    }
    const before = this.stages[this.stage - 1];
    const list = stage.changes.slice(0, 300).map((change) => element("button", {
      type: "button", class: "change", onclick: () => this.showChange(before, stage, change),
    }, element("span", { class: "place" }, placeText(change.line)),
    change.was ? element("span", { class: "minus" }, change.was) : null,
    change.now ? element("span", { class: "plus" }, change.now) : null));
    const more = stage.changes.length - list.length;
    this.changes.replaceChildren(
      element("h3", {}, `Changes in ${stage.name}`),
      ...(list.length ? list : [element("p", { class: "hint" }, "It changed nothing.")]),
      ...(more > 0 ? [element("p", { class: "hint" }, `and ${more} more`)] : []));
  }

  showChange(before, stage, change) {
    if (change.added.length && this.drawing) this.drawing.reveal(change.added[0]);
    else if (change.removed.length && before && data.graphs[before.graph].ops) {
      this.show(this.stage - 1);
      this.drawing.reveal(change.removed[0]);
    }
  }

  picked(node) {
    if (node) {
      this.identity = node.item ? null : node.op.id;
      this.report.describe(this.about, node);
    } else {
      this.report.overview(this.about, data.graphs[this.stages[this.stage].graph]);
    }
  }

  zoom(by) {
    if (this.drawing) d3.select(this.drawing.svg).call(this.drawing.zoom.scaleBy, by);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.show(Math.min(Math.max(this.stage + step, 0), this.stages.length - 1));
  }

  /* Show an op, in the stage that is shown if that has its graph, else in one that has. */
  reveal(graph, place, depth) {
    if (this.stages[this.stage].graph !== graph) {
      const at = pipelines.findIndex((each) => each.stages.some((stage) => stage.graph === graph));
      if (at < 0) return;
      if (at !== this.pipeline) this.choose(at);
      this.show(this.stages.findIndex((stage) => stage.graph === graph));
    }
    if (this.drawing) this.drawing.reveal(place, depth);
  }
}

const MOST_FOUND = 80; // The most results of a search that are listed.

class Report {
  constructor(root) {
    this.root = root;
    this.views = new Map();
    this.tabs = data.graphs
      ? [["graph", "Graph", GraphView], ["code", "Code", CodeView], ["memory", "Memory", MemoryView]]
      : [];
    if (data.profile) this.tabs.push(["profile", "Profile", ProfileView]);
    this.panels = new Map(this.tabs.map(([name]) => [name, element("div", {
      id: `panel-${name}`, class: "panel", role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true,
    })]));
    this.buttons = new Map(this.tabs.map(([name, title]) => [name, button(title, () => this.open(name), {
      id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`,
    })]));
    root.append(this.head(), element("main", {}, [...this.panels.values()]));
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("beforeprint", () => {
      this.tabs.forEach(([name]) => this.view(name));
      this.views.get("graph")?.drawing?.printed(true);
    });
    window.addEventListener("afterprint", () => this.views.get("graph")?.drawing?.printed(false));
    window.addEventListener("resize", () => this.views.get(this.current).resized?.());
    const [first] = this.tabs[0];
    const wanted = location.hash.slice(1);
    this.open(this.panels.has(wanted) ? wanted : first);
  }

  head() {
    const about = data.profile && !data.graphs ? data.profile : data;
    const chips = [[about.backend, "backend"], [about.device, "device"]];
    for (const [name, length] of Object.entries(data.lengths || {})) chips.push([`${name} = ${length}`, "length"]);
    const numbers = [];
    if (data.graphs) {
      const [plan] = data.plans;
      numbers.push(["ops", data.graphs[data.captured].count.toLocaleString("en")]);
      numbers.push(["steps", plan.steps.length.toLocaleString("en")]);
      numbers.push(["arena", bytesText(plan.arena)]);
    }
    if (data.profile) numbers.push(["a call", secondsText(data.profile.ordinary)]);
    return element("header", {},
      element("div", { class: "brand" }, element("span", { class: "logo" }, "weft"),
        element("h1", {}, about.computation),
        chips.map(([text, name]) => element("span", { class: "chip", title: name }, shortened(text, 48)))),
      element("div", { class: "numbers" }, numbers.map(([name, value]) =>
        element("span", {}, element("strong", {}, value), ` ${name}`))),
      element("nav", {}, this.tabs.length > 1 ? element("div", { role: "tablist", onkeydown: (event) => this.tabKey(event) }, [...this.buttons.values()]) : null,
        data.graphs ? this.search() : null,
        button("Theme", () => this.theme(), { class: "theme", title: "Light, dark, or as the system says" })));
  }

  theme() {
    const style = document.documentElement.style;
    const order = ["light dark", "light", "dark"];
    const next = order[(order.indexOf(style.colorScheme || "light dark") + 1) % 3];
    style.colorScheme = next;
    this.root.querySelector(".theme").textContent = { "light dark": "Theme", light: "Light", dark: "Dark" }[next];
  }

  search() {
    this.found = element("div", { class: "found", role: "listbox", "aria-label": "Found", hidden: true });
    this.field = element("input", {
      type: "search", placeholder: "Search: softmax, layers/6, loss, model.py:12   /",
      "aria-label": "Search by scope, name, function or line",
      oninput: () => this.find(), onfocus: () => this.find(),
      onkeydown: (event) => this.searchKey(event),
    });
    document.addEventListener("click", (event) => {
      if (!event.target.closest(".search")) this.found.hidden = true;
    });
    return element("div", { class: "search" }, this.field, this.found);
  }

  find() {
    const { stages, stage } = this.view("graph");
    const shown = [stages[stage], stages[0], stages[stages.length - 1], ...stages].map((each) => each.graph);
    const results = searched(this.field.value, new Set(shown));
    this.found.hidden = !this.field.value.trim();
    this.found.replaceChildren(element("p", { class: "hint" },
      results.length ? `${counted(results.length, "result")}${results.length > MOST_FOUND ? `, of which ${MOST_FOUND} are shown` : ""}`
        : "Nothing has this scope, name, function or line."),
    ...results.slice(0, MOST_FOUND).map((result) => this.result(result)));
  }

  result({ graph, place, scope, depth, count, op, part, location }) {
    if (scope) return this.resultButton(scope, counted(count, "op"), "scope", () => this.showOp(graph, place, depth));
    if (!op) return this.resultButton(lineText(location), placeText(location), "line", () => this.showCode(location));
    const title = (part ? `${part} in ` : "") + (op.of >= 0 ? "∇ " : "") + opCalled(graph, place);
    return this.resultButton(title, `${whereText(op)} · ${placeText(op.line)}`, "op", () => this.showOp(graph, place), typeText(op.type));
  }

  resultButton(title, sub, kind, onclick, hint) {
    return element("button", {
      type: "button", role: "option", class: `result ${kind}`, title: hint,
      onclick: () => { this.found.hidden = true; onclick(); },
    }, element("span", {}, title), element("small", {}, sub));
  }

  searchKey(event) {
    if (event.key === "Escape") {
      this.found.hidden = true;
      this.field.blur();
    } else if (event.key === "Enter") {
      this.found.querySelector("button")?.click();
    } else if (event.key === "ArrowDown") {
      this.found.querySelector("button")?.focus();
    }
  }

  view(name) {
    if (!this.views.has(name)) {
      const [, , View] = this.tabs.find(([each]) => each === name);
      const view = new View(this);
      this.views.set(name, view);
      this.panels.get(name).append(view.made());
      view.begin?.();
    }
    return this.views.get(name);
  }

  open(name) {
    const isHidden = this.panels.get(name).hidden;
    for (const [each, panel] of this.panels) {
      panel.hidden = each !== name;
      this.buttons.get(each).setAttribute("aria-selected", each === name);
      this.buttons.get(each).tabIndex = each === name ? 0 : -1;
    }
    this.current = name;
    history.replaceState(null, "", `#${name}`);
    const view = this.view(name);
    if (isHidden) view.resized?.();
    return view;
  }

  /* Show an op, or the box of its scope of a depth. */
  showOp(graph, place, depth) {
    this.open("graph").reveal(graph, place, depth);
  }

  showCode(location) {
    this.open("code").pick(location);
  }

  /* Show the first op of a line, in the stage that is shown. */
  showLine(location) {
    const view = this.open("graph");
    const graph = data.graphs[view.stages[view.stage].graph];
    const place = (graph.ops || []).findIndex((op) => op.role !== "result" && op.role !== "constant" && locationsOf(op).includes(location));
    if (place >= 0) view.reveal(view.stages[view.stage].graph, place);
  }

  key(event) {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = Number(event.key);
    if (event.key === "/" && this.field) {
      event.preventDefault();
      this.field.focus();
    } else if (number >= 1 && number <= this.tabs.length && !event.target.closest("svg")) {
      this.open(this.tabs[number - 1][0]);
    }
  }

  tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = this.tabs.map(([name]) => name);
    const next = names[(names.indexOf(this.current) + step + names.length) % names.length];
    this.open(next);
    this.buttons.get(next).focus();
  }

  // What is said of an op, beside the graph

  overview(about, graph) {
    const kinds = new Map();
    for (const op of graph.ops || []) {
      if (op.role) continue;
      kinds.set(opTitle(op), (kinds.get(opTitle(op)) || 0) + 1);
    }
    const list = [...kinds].sort(([, a], [, b]) => b - a);
    about.replaceChildren(titled(graph.name, facts([
      ["ops", graph.count.toLocaleString("en")],
      ["kernels", graph.kernels || ""],
      ["inputs", graph.inputs && graph.inputs.length],
      ["results", graph.outputs && graph.outputs.length],
      ["updates", graph.updates && graph.updates.length],
    ])), list.length ? titled("Kinds of ops", sortedTable([
      { title: "kind", text: true, value: ([name]) => name, show: ([name]) => shortened(name, 40) },
      { title: "count", value: ([, count]) => count },
    ], list, { by: 1, label: "Kinds of ops" })) : "",
    element("p", { class: "hint" }, !graph.ops ? "Click a line to see it in the code." : "Click an op or a box to see more. Boxes open by their arrow, by a double click or by Enter."));
  }

  describe(about, node) {
    if (node.item) {
      const nodes = [...node.ops()];
      about.replaceChildren(titled(shortened(node.title, 80), facts([
        ["scope", node.item.kind === "scope" && node.scopes.map((box) => box.name).join("/")],
        ["holds", counted(node.count, "op")],
        ["lines", node.lines],
        ["time", timeText(nodes.flatMap(({ op, place }) => stepsOf(node.frame.graph, op, place)))],
      ]), this.pairOf(node), node.item.line === undefined ? null : this.userLine(node.item.line)));
      return;
    }
    const { op, frame, place } = node;
    const marks = node.marks.map((text) => text.slice(2));
    const types = op.type !== undefined && typeText(op.type)
      ? typeText(op.type) : this.resultTypes(frame, place);
    const steps = frame.kernel ? [] : stepsOf(frame.graph, op, place);
    const { computed, others } = partsOf(op, steps);
    const parts = [facts([
      ["kind", op.kind],
      ["scope", op.scope],
      ["function", functionText(op.line)],
      ["name", op.name],
      ["type", types && element("span", { class: "mono" }, types)],
      ["value", op.value],
      ["attributes", op.fields && element("span", { class: "mono" }, op.fields)],
      ["domain", op.body && `${op.body.domain.join(" × ")}${op.body.reduced.length ? `, reduced along ${op.body.reduced.join(", ")}` : ""}`],
      ["gives", marks.join(", ")],
      ["time", timeText(steps)],
    ])];
    if (steps.length) parts.push(titled("Runs in", this.stepList(steps, computed)));
    parts.push(this.linesOf(op));
    if (others.length) {
      const title = computed.some((each) => each.length) ? "Merged, folded or rewritten" : "Computes";
      parts.push(titled(title, this.partList(others)));
    }
    parts.push(this.pairOf(node));
    if (node.opens) {
      const drawing = this.view("graph").drawing;
      parts.push(button(node.isOpen ? "Close the box" : "Open the box", () => { drawing.toggle(node); this.describe(about, node); }, { class: "plain" }));
    }
    if (!frame.kernel) {
      const inputs = [...new Set(op.args || [])], used = usersOf(frame.graph, place);
      if (inputs.length) parts.push(titled("Operands", this.opList(frame.graph, inputs)));
      if (used.length) parts.push(titled("Used by", this.opList(frame.graph, used)));
      const blocks = blocksOf(frame.graph, place);
      if (blocks.length) {
        parts.push(titled("Memory", blocks.map((block) => button(
          `${block.workspace ? "workspace, " : ""}${bytesText(block.bytes)}, steps ${block.first} to ${block.last}`,
          () => this.open("memory").showBlock(block.plan, block.index), { class: "link" }))));
      }
    }
    about.replaceChildren(element("section", { class: "block" },
      element("h3", {}, element("i", { class: `swatch ${classOf(op.class)}` }), shortened(node.title, 90)),
      ...parts.filter(Boolean)));
  }

  /* The gradient of what is selected, or what that is the gradient of. */
  pairOf(node) {
    if (!node.pair.length) return null;
    const graph = this.view("graph");
    return titled(node.isGradient ? "Gradient of" : "Gradient", element("ul", { class: "ops pairs" },
      node.pair.slice(0, 12).map((each) => element("li", {},
        button(each.title, () => graph.drawing.revealNode(each), { class: "link" }),
        element("small", {}, each.sub)))));
  }

  /* The steps that compute an op, each with its time and what it computes of that. */
  stepList(steps, computed) {
    return element("ul", { class: "ops steps" }, steps.slice(0, 12).map((step, number) => {
      const rows = rowsOf(step.graph, step.place);
      return element("li", {},
        button(opCalled(step.graph, step.place), () => this.showOp(step.graph, step.place), { class: "link" }),
        rows.map((row) => button(timeText([step]).replace(" of the call", ""),
          () => this.open("profile").pick(row), { class: "link time", title: "Show it in the profile" })),
        computed[number].length ? this.partList(computed[number]) : null);
    }));
  }

  partList(parts) {
    return element("ul", { class: "ops parts" }, parts.map(([kind, type]) =>
      element("li", {}, element("span", {}, kind), element("small", {}, typeText(type)))));
  }

  resultTypes(frame, place) {
    const graph = data.graphs[frame.graph];
    if (frame.kernel || !graph.ops) return "";
    const found = graph.ops.filter((op) => op.role === "result" && op.args[0] === place);
    found.sort((one, other) => one.index - other.index);
    return found.map((op) => typeText(op.type)).join(", ");
  }

  opList(graph, places) {
    const { ops } = data.graphs[graph];
    const shown = places.slice(0, 30).map((place) => element("li", {},
      button(opCalled(graph, place), () => this.view("graph").reveal(graph, place), { class: "link" }),
      element("small", {}, typeText(ops[place].type))));
    const more = places.length - shown.length;
    return element("ul", { class: "ops" }, shown, more > 0 ? element("li", {}, `and ${more} more`) : null);
  }

  linesOf(op) {
    return element("div", { class: "lines" }, locationsOf(op).slice(0, 12).map((each) => this.userLine(each)));
  }

  userLine(location) {
    return button([
      element("span", { class: "place" }, placeText(location)),
      element("code", {}, lineText(location) || "(the file is not there)"),
    ], () => this.showCode(location), { class: "userline", title: "Show the code" });
  }
}

new Report(document.getElementById("report"));
