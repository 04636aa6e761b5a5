// The graph: ops and boxes of ops, laid out by dagre, drawn as SVG, moved and zoomed by d3-zoom.

const TITLE = "600 12.5px system-ui, sans-serif", SUB = "11px ui-monospace, monospace";
const HEAD = 30, PAD = 14, LINE = 16, FEWEST_FOR_SPEED = 50;

/* The least scale at which text can be read, the size of the map of the whole drawing, and the
   height of the buttons over it. */
const READABLE = 0.75, MAP = { width: 170, height: 150 }, TOOLS = 46;

/* A node of the drawing. `frame` is what its ops belong to: a graph, or the body of a kernel. */
class DrawnNode {
  constructor(frame, parent, place, item) {
    Object.assign(this, { frame, parent, place, item });
    this.op = item ? null : frame.ops[place];
    this.id = item ? `${frame.id}b${frame.boxes++}` : `${frame.id}${place}`;
    this.isOpen = false;
    this.inside = null;
  }

  get opens() {
    return Boolean(this.item || this.op.body || this.op.graphs);
  }

  get children() {
    if (this.inside === null) this.inside = this.opens ? this.made() : [];
    return this.inside;
  }

  made() {
    if (this.item) {
      return this.item.items.map((item) => nodeOf(this.frame, this, item));
    }
    if (this.op.body) return kernelFrame(this).roots;
    return this.op.graphs.flatMap((number) => {
      const graph = data.graphs[number];
      return graph.ops ? graphFrame(number, `${this.id}/${number}/`, this).roots : [];
    });
  }

  /* The nodes of ops in it, also in boxes that are closed. */
  *ops() {
    if (!this.item) yield this;
    else for (const child of this.children) yield* child.ops();
  }

  /* The boxes of scopes that hold it, the outermost first, and itself if it is one. */
  get scopes() {
    const above = this.parent ? this.parent.scopes : [];
    return this.item?.kind === "scope" ? [...above, this] : above;
  }

  get title() {
    return (this.isGradient ? "∇ " : "") + this.name;
  }

  get name() {
    if (!this.item) return opTitle(this.op);
    const { title, line } = this.item;
    if (title) return title;
    return line === undefined ? counted(this.count, this.given || "op") : functionText(line);
  }

  /* Whether it is part of a gradient. */
  get isGradient() {
    return this.item ? Boolean(this.item.gradient) : this.op.of >= 0;
  }

  get sub() {
    if (this.item) {
      const { kind, line } = this.item, count = counted(this.count, this.given || "op");
      if (kind === "line") return `${placeText(line)} · ${count}`;
      return kind === "part" ? this.lines : count;
    }
    if (this.op.body) return counted(this.op.body.ops.length, "op");
    if (this.op.graphs) {
      const names = this.op.graphs.map((number) => data.graphs[number].name);
      return names.join(", ") + (this.op.count ? ` × ${this.op.count}` : "");
    }
    return typeText(this.op.type);
  }

  get count() {
    let count = 0;
    for (const _ of this.ops()) count++;
    return count;
  }

  /* What all of its ops are, if they are inputs or states. */
  get given() {
    const roles = new Set([...this.ops()].map((node) => node.op.role));
    const [role] = roles;
    return roles.size === 1 && (role === "input" || role === "state") ? role : "";
  }

  get lines() {
    const places = [...this.ops()].map((node) => placeText(node.op.line));
    const [first, last] = [places[0], places[places.length - 1]];
    return first === last ? first : `${first} – ${last}`;
  }

  get marks() {
    return this.item ? [] : this.frame.marks.get(this.place) || [];
  }

  /* What it is the gradient of, or what its gradient is: ops of an op, the box of a box. */
  get pair() {
    if (this.paired === undefined) this.paired = this.frame.kernel ? [] : this.found();
    return this.paired;
  }

  found() {
    const ops = [...this.ops()].filter((node) => node.isGradient === this.isGradient);
    const { backward, graph, nodes } = this.frame, places = placesIn(graph);
    const to = ops.flatMap(({ op }) => this.isGradient
      ? forwardOf(op).flatMap((id) => places.get(id) || [])
      : identitiesOf(op).flatMap((id) => backward.get(id) || []));
    const others = [...new Set(to)].map((place) => nodes.get(place))
      .filter((node) => node && node !== this && node.isGradient !== this.isGradient);
    return this.item ? this.boxAround(others) : others;
  }

  /* The box that holds most of some ops, as a list: of its own name, or the innermost. */
  boxAround(nodes) {
    const counts = new Map();
    for (const node of nodes) {
      for (let box = node.parent; box && box.frame === node.frame; box = box.parent) {
        if (box.isGradient !== this.isGradient) counts.set(box, (counts.get(box) || 0) + 1);
      }
    }
    const found = [...counts].filter(([, count]) => 2 * count > nodes.length).map(([box]) => box);
    return [found.find((box) => box.name === this.name) || found[0]].filter(Boolean);
  }

  get visible() {
    let shown = this;
    for (let above = this.parent; above; above = above.parent) if (!above.isOpen) shown = above;
    return shown;
  }
}

function nodeOf(frame, parent, item) {
  if (typeof item !== "number") return new DrawnNode(frame, parent, null, item);
  const node = new DrawnNode(frame, parent, item, null);
  frame.nodes.set(item, node);
  return node;
}

function graphFrame(number, id = "", parent = null) {
  const graph = data.graphs[number];
  const frame = { id, graph: number, ops: graph.ops, nodes: new Map(), marks: new Map(), boxes: 0 };
  const mark = (place, text) => {
    const at = drawnAs(graph, place);
    frame.marks.set(at, [...(frame.marks.get(at) || []), text]);
  };
  graph.outputs.forEach((place, index) =>
    mark(place, graph.outputs.length > 1 ? `→ result ${index}` : "→ result"));
  graph.updates.forEach(([state, place]) => mark(place, `→ ${state}`));
  frame.backward = new Map();
  graph.ops.forEach((op, place) => forwardOf(op).forEach((id) => {
    if (op.of >= 0) frame.backward.set(id, [...(frame.backward.get(id) || []), place]);
  }));
  frame.sources = (place) => [...new Set((graph.ops[place].args || [])
    .map((arg) => drawnAs(graph, arg)))];
  frame.roots = graph.items.map((item) => nodeOf(frame, parent, item));
  // Nodes inside of boxes are there from the beginning, so that edges find them.
  const waiting = [...frame.roots];
  while (waiting.length) {
    const node = waiting.pop();
    if (node.item) waiting.push(...node.children);
  }
  return frame;
}

/* The identities of what an op is the gradient of. */
function forwardOf(op) {
  return (op.body ? op.body.ops : [op]).map((each) => each.of).filter((id) => id >= 0);
}

/* The body of a kernel: its operands, and its ops. */
function kernelFrame(parent) {
  const { body, args } = parent.op, graph = data.graphs[parent.frame.graph];
  const operands = args.map((arg) => {
    const op = graph.ops[drawnAs(graph, arg)];
    return {
      kind: "Operand", role: op.role === "constant" ? "constant" : "input",
      name: opCalled(parent.frame.graph, arg), value: op.value, type: graph.ops[arg].type,
      line: op.line, class: "other",
    };
  });
  const frame = {
    id: `${parent.id}/`, graph: parent.frame.graph, kernel: parent, nodes: new Map(), boxes: 0,
    ops: [...operands, ...body.ops], marks: new Map(),
  };
  body.outputs.forEach((place, index) => frame.marks.set(place, [
    ...(frame.marks.get(place) || []), body.outputs.length > 1 ? `→ result ${index}` : "→ result",
  ]));
  frame.sources = (place) => [...new Set(frame.ops[place].args || [])];
  const shown = frame.ops.map((op, place) => place)
    .filter((place) => place >= operands.length || frame.ops[place].role !== "constant");
  frame.roots = shown.map((place) => nodeOf(frame, parent, place));
  return frame;
}

/* The drawing of one graph. */
class Drawing {
  constructor(number, { onpick }) {
    this.number = number;
    this.onpick = onpick;
    this.frame = graphFrame(number);
    this.added = new Set();
    this.layouts = new Map();
    this.picked = null;
    this.scene = shape("g");
    this.svg = shape("svg", {
      class: "drawing", role: "application", tabindex: 0,
      "aria-label": "Graph. Arrow keys move the selection, Enter opens and closes boxes.",
      onkeydown: (event) => this.key(event),
    }, shape("defs", {}, shape("marker", {
      id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto",
    }, shape("path", { d: "M0 0.8 L8 4 L0 7.2 z", class: "tip" }))), this.scene);
    this.window = shape("rect", { class: "window" });
    this.map = shape("svg", {
      class: "map", role: "img", "aria-label": "The whole graph, and the part that is shown",
      onpointerdown: (event) => this.moved(event),
      onpointermove: (event) => event.buttons && this.moved(event),
    });
    this.zoom = d3.zoom().scaleExtent([0.02, 3]).on("zoom", ({ transform }) => {
      this.scene.setAttribute("transform", transform);
      this.showWindow(transform);
    });
    d3.select(this.svg).call(this.zoom).on("dblclick.zoom", null);
  }

  draw() {
    const root = this.arranged(null, this.frame.roots);
    const boxes = shape("g"), edges = shape("g"), nodes = shape("g");
    this.elements = new Map();
    this.positions = new Map();
    this.edges = [];
    this.place(null, this.frame.roots, 0, 0, boxes, edges, nodes);
    this.scene.replaceChildren(boxes, edges, nodes);
    this.size = root;
    this.drawMap();
    this.show();
  }

  /* The map of the whole drawing, which is there while only a part of that is in view. */
  drawMap() {
    const { width, height } = this.size;
    const scale = Math.min(MAP.width / width, MAP.height / height);
    this.dots = new Map([...this.positions].map(([node, at]) => [node, shape("rect", {
      class: node.isOpen ? "area" : `dot ${node.item ? "" : classOf(node.op.class)}`, rx: 2 / scale,
      x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height,
    })]));
    for (const [name, value] of Object.entries({
      width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`,
    })) this.map.setAttribute(name, value);
    this.map.replaceChildren(...this.dots.values(), this.window);
    this.showWindow(d3.zoomTransform(this.svg));
  }

  showWindow({ k, x, y }) {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !this.size) return;
    const at = { x: -x / k, y: -y / k, width: width / k, height: height / k };
    for (const [name, value] of Object.entries(at)) this.window.setAttribute(name, value);
    const isWhole = at.x <= 0 && at.y <= 0 && at.x + at.width >= this.size.width &&
      at.y + at.height >= this.size.height;
    this.map.classList.toggle("whole", isWhole);
  }

  /* Move the view to where the map is pressed. */
  moved(event) {
    const [x, y] = d3.pointer(event, this.map);
    const { k } = d3.zoomTransform(this.svg);
    d3.select(this.svg).call(this.zoom.transform, this.middle(x, y, k));
  }

  /* The size and places of what is in a box. Cached until something in it opens or closes. */
  arranged(box, children) {
    if (this.layouts.has(box)) return this.layouts.get(box);
    const graph = new dagre.graphlib.Graph();
    const isLarge = children.length > FEWEST_FOR_SPEED;
    graph.setGraph({
      rankdir: "TB", nodesep: 16, ranksep: 26, marginx: PAD, marginy: PAD,
      ranker: isLarge ? "longest-path" : "network-simplex",
    });
    graph.setDefaultEdgeLabel(() => ({}));
    const own = new Set(children);
    for (const child of children) graph.setNode(child.id, this.sizeOf(child));
    for (const [from, to] of this.edgesIn(children)) {
      const [a, b] = [from, to].map((node) => ancestorIn(node, own));
      if (a && b && a !== b) graph.setEdge(a.id, b.id);
    }
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const found = {
      width: Math.max(width || 0, 2 * PAD), height: Math.max(height || 0, 2 * PAD), graph,
    };
    this.layouts.set(box, found);
    return found;
  }

  sizeOf(node) {
    if (node.isOpen && node.children.length) {
      const { width, height } = this.arranged(node, node.children);
      const least = widthOf(shortened(node.title, 60), TITLE) + 60;
      return { width: Math.max(width, least), height: height + HEAD };
    }
    const title = widthOf(shortened(node.title, 46), TITLE) + (node.opens ? 22 : 0);
    const rows = [node.sub, ...node.marks].filter(Boolean);
    const inside = Math.max(title, ...rows.map((text) => widthOf(shortened(text, 46), SUB)));
    return { width: Math.max(inside + 26, 64), height: 14 + LINE * (1 + rows.length) };
  }

  /* The edges between nodes that are visible in a box, each once. */
  *edgesIn(children) {
    const seen = new Set();
    for (const child of children) {
      for (const node of child.ops()) {
        for (const place of node.frame.sources(node.place)) {
          const from = node.frame.nodes.get(place);
          if (!from) continue;
          const [a, b] = [from.visible, node.visible];
          const key = `${a.id}>${b.id}`;
          if (a === b || seen.has(key)) continue;
          seen.add(key);
          yield [a, b];
        }
      }
    }
  }

  place(box, children, left, top, boxes, edges, nodes) {
    const { graph } = this.layouts.get(box);
    const own = new Set(children);
    for (const child of children) {
      const { x, y, width, height } = graph.node(child.id);
      const at = { x: left + x, y: top + y, width, height };
      this.positions.set(child, at);
      const [made, layer] = child.isOpen && child.children.length
        ? [this.openBox(child, at), boxes] : [this.closedNode(child, at), nodes];
      this.elements.set(child, made);
      layer.append(made);
      if (layer === boxes) {
        const inner = this.layouts.get(child);
        const x0 = at.x - inner.width / 2, y0 = at.y - height / 2 + HEAD;
        this.place(child, child.children, x0, y0, boxes, edges, nodes);
      }
    }
    const between = new Map();
    for (const [from, to] of this.edgesIn(children)) {
      const [a, b] = [from, to].map((node) => ancestorIn(node, own));
      if (!a || !b || a === b) continue;
      between.set(`${a.id}>${b.id}`, [a, b]);
      if (a === from && b === to) continue;
      const path = straight(this.positions.get(from), this.positions.get(to));
      edges.append(this.edge(from, to, path, "edge inner"));
    }
    for (const [a, b] of between.values()) {
      const { points } = graph.edge(a.id, b.id);
      edges.append(this.edge(a, b, curve(points.map(({ x, y }) => [left + x, top + y])), "edge"));
    }
  }

  edge(from, to, path, name) {
    const line = shape("path", { d: path, class: name, "marker-end": "url(#tip)" });
    this.edges.push({ from, to, line });
    return line;
  }

  closedNode(node, { x, y, width, height }) {
    const role = node.item ? `box ${node.item.kind}` : node.op.role || (node.opens ? "kernel" : "");
    const kind = node.item ? "" : classOf(node.op.class);
    const made = shape("g", {
      class: `node ${role} ${kind}${node.isGradient ? " gradient" : ""}`, transform: `translate(${x - width / 2},${y - height / 2})`,
      "data-id": node.id,
      onclick: () => this.clicked(node),
      ondblclick: () => !node.item && this.toggle(node),
    });
    made.append(shape("title", {}, [node.title, node.sub, ...this.line(node)].join("\n")));
    if (node.opens) made.append(shape("rect", { class: "below", x: 3, y: 3, width, height, rx: 6 }));
    const round = role === "input" || role === "state" || role === "constant" ? height / 2 : 6;
    made.append(shape("rect", { class: "face", width, height, rx: round }));
    const lines = [node.sub, ...node.marks].filter(Boolean);
    const middle = width / 2 + (node.opens ? 9 : 0);
    made.append(shape("text", { class: "title", x: middle, y: 19 }, shortened(node.title, 46)));
    lines.forEach((text, number) => made.append(shape("text", {
      class: text.startsWith("→") ? "sub mark" : "sub", x: width / 2, y: 19 + LINE * (number + 1),
    }, shortened(text, 46))));
    if (node.opens) made.append(this.sign(node, 9, 8));
    return made;
  }

  openBox(node, { x, y, width, height }) {
    const made = shape("g", {
      class: `open ${node.item ? node.item.kind : "kernel"}${node.isGradient ? " gradient" : ""}`,
      "data-id": node.id,
      transform: `translate(${x - width / 2},${y - height / 2})`,
    });
    made.append(
      shape("rect", { class: "face", width, height, rx: 8 }),
      shape("rect", {
        class: "head", width, height: HEAD, rx: 8, onclick: () => this.clicked(node),
      }),
      shape("text", { class: "title", x: 30, y: 19 }, shortened(node.title, 60)),
      this.sign(node, 9, 7),
    );
    return made;
  }

  /* The sign that opens or closes a box. */
  sign(node, x, y) {
    const d = node.isOpen ? "M1 4 L11 4 L6 10 z" : "M3 1 L10 6 L3 11 z";
    return shape("g", {
      class: "sign", transform: `translate(${x},${y})`, role: "button",
      "aria-label": node.isOpen ? "close" : "open",
      onclick: (event) => { event.stopPropagation(); this.toggle(node); },
      ondblclick: (event) => event.stopPropagation(),
    }, shape("rect", { x: -5, y: -5, width: 22, height: 22 }), shape("path", { d }));
  }

  line(node) {
    const line = node.item ? node.item.line : node.op.line;
    const where = node.item ? [] : [node.op.scope].filter(Boolean);
    return line === undefined ? where : [...where, `${placeText(line)}  ${lineText(line)}`];
  }

  clicked(node) {
    if (node.item) this.toggle(node);
    this.pick(node);
  }

  pick(node) {
    this.picked = node;
    this.show();
    this.onpick(node);
  }

  toggle(node, isOpen = !node.isOpen) {
    node.isOpen = isOpen;
    for (let each = node; each; each = each.parent) this.layouts.delete(each);
    this.layouts.delete(null);
    const before = this.positions && this.positions.get(node);
    this.draw();
    const now = this.positions.get(node);
    if (before && now) this.shift(before, now);
    if (isOpen) this.bringIntoView(now);
    else if (this.isReadable) this.fit();
  }

  /* Whether all of it can be read at once. */
  get isReadable() {
    const { width, height } = this.svg.getBoundingClientRect();
    return Math.min(width / this.size.width, height / this.size.height) >= READABLE;
  }

  /* Show a box as a whole, or its beginning where that would be too small to read. */
  bringIntoView(at) {
    if (this.isReadable) return this.fit();
    const { width, height } = this.svg.getBoundingClientRect();
    const { x, y, k } = d3.zoomTransform(this.svg);
    const left = x + (at.x - at.width / 2) * k, top = y + (at.y - at.height / 2) * k;
    const isInView = left >= 0 && top >= 0 && left + at.width * k <= width && top + at.height * k <= height;
    if (!width || (isInView && k >= READABLE)) return;
    const whole = Math.min(width / (at.width + 20), height / (at.height + 20), 1);
    const scale = Math.max(whole, READABLE);
    const middle = (center, size, room) => size * scale + 20 <= room
      ? center : center - size / 2 + (room / 2 - 10) / scale;
    d3.select(this.svg).call(this.zoom.transform, this.middle(
      middle(at.x, at.width, width), middle(at.y, at.height, height), scale));
  }

  /* Keep the head of a box where it was on the screen. */
  shift(before, now) {
    const transform = d3.zoomTransform(this.svg);
    const x = (before.x - now.x) * transform.k;
    const y = (before.y - before.height / 2 - now.y + now.height / 2) * transform.k;
    const moved = d3.zoomIdentity.translate(transform.x + x, transform.y + y).scale(transform.k);
    d3.select(this.svg).call(this.zoom.transform, moved);
  }

  /* Mark what is selected, its neighbors, and what the pass added. */
  show() {
    const shown = this.picked && this.picked.visible;
    const near = new Set();
    for (const { from, to, line } of this.edges) {
      const isNear = shown && (from === shown || to === shown);
      line.classList.toggle("near", Boolean(isNear));
      if (isNear) near.add(from).add(to);
    }
    const pair = new Set(this.picked ? this.picked.pair.map((node) => node.visible) : []);
    for (const [node, made] of this.elements) {
      made.classList.toggle("picked", node === shown);
      this.dots.get(node).classList.toggle("picked", node === shown);
      made.classList.toggle("pair", pair.has(node) && node !== shown);
      made.classList.toggle("near", near.has(node));
      made.classList.toggle("added", this.hasAdded(node));
    }
  }

  hasAdded(node) {
    if (!this.added.size || node.frame !== this.frame) return false;
    if (!node.item) return this.added.has(node.place);
    return [...node.ops()].some((each) => this.added.has(each.place));
  }

  mark(added) {
    this.added = new Set(added.map((place) => drawnAs(data.graphs[this.number], place)));
    if (this.elements) this.show();
  }

  /* Select an op, or the box of its scope of a depth, and bring it into view; boxes around it open. */
  reveal(place, depth) {
    const node = this.frame.nodes.get(drawnAs(data.graphs[this.number], place));
    this.revealNode(node && (node.scopes[depth] || node));
  }

  revealNode(node) {
    if (!node) return;
    let changed = false;
    for (let above = node.parent; above; above = above.parent) {
      changed ||= !above.isOpen;
      above.isOpen = true;
      this.layouts.delete(above);
    }
    if (changed) {
      this.layouts.delete(null);
      this.draw();
    }
    this.pick(node);
    if (node.isOpen) this.bringIntoView(this.positions.get(node));
    else this.center(node);
  }

  center(node) {
    const at = this.positions.get(node.visible);
    const scale = Math.max(d3.zoomTransform(this.svg).k, READABLE);
    d3.select(this.svg).call(this.zoom.transform, this.middle(at.x, at.y, scale));
  }

  middle(x, y, scale) {
    const { width, height } = this.svg.getBoundingClientRect();
    return d3.zoomIdentity.translate(width / 2 - x * scale, height / 2 - y * scale).scale(scale);
  }

  /* Show all of it, or its beginning where all of it would be smaller than `least`. */
  fit(least = 0.02) {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width) return;
    const whole = Math.min(width / this.size.width, height / this.size.height, 1);
    const scale = Math.max(whole, least);
    const x = width / 2 - (this.size.width / 2) * scale;
    const y = Math.max((height - this.size.height * scale) / 2, whole < least ? TOOLS : 6);
    d3.select(this.svg).call(this.zoom.transform, d3.zoomIdentity.translate(x, y).scale(scale));
  }

  /* Scale the drawing to the paper as a whole, or back to what the zoom says. */
  printed(isPrinted) {
    const { width, height } = this.size;
    if (isPrinted) {
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.scene.removeAttribute("transform");
    } else {
      this.svg.removeAttribute("viewBox");
      this.scene.setAttribute("transform", d3.zoomTransform(this.svg));
    }
  }

  openAll(isOpen) {
    let waiting = [...this.frame.roots], count = waiting.length;
    while (waiting.length && count < 600) {
      const next = [];
      for (const node of waiting) {
        if (!node.opens) continue;
        node.isOpen = isOpen;
        next.push(...node.children);
      }
      waiting = next;
      count += next.length;
    }
    this.layouts.clear();
    this.draw();
    this.fit(READABLE);
  }

  key(event) {
    const shown = this.picked && this.picked.visible;
    const nodes = [...this.elements.keys()];
    const beside = (step) => {
      const place = nodes.indexOf(shown);
      return nodes[Math.min(Math.max(place + step, 0), nodes.length - 1)];
    };
    const along = (here, there) => {
      const edge = this.edges.find((each) => each[here] === shown);
      return edge && edge[there];
    };
    const next = {
      ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
      ArrowDown: () => along("from", "to") || beside(1),
      ArrowUp: () => along("to", "from") || beside(-1),
    }[event.key];
    if (next) {
      const node = next();
      if (node) { this.pick(node); this.center(node); }
    } else if (event.key === "Enter" && shown && shown.opens) {
      this.toggle(shown);
    } else if (event.key === "+" || event.key === "-") {
      d3.select(this.svg).call(this.zoom.scaleBy, event.key === "+" ? 1.25 : 0.8);
    } else if (event.key === "0") {
      this.fit();
    } else {
      return;
    }
    event.preventDefault();
  }
}

function ancestorIn(node, set) {
  while (node && !set.has(node)) node = node.parent;
  return node;
}

/* A smooth line through points. */
function curve(points) {
  let path = `M${points[0].join()}`;
  for (let n = 1; n < points.length - 1; n++) {
    const [x, y] = points[n], [nextX, nextY] = points[n + 1];
    const end = n === points.length - 2 ? [nextX, nextY] : [(x + nextX) / 2, (y + nextY) / 2];
    path += `Q${x},${y} ${end.join()}`;
  }
  return points.length === 2 ? `${path}L${points[1].join()}` : path;
}

/* A line from the bottom of one node to the top of another. */
function straight(from, to) {
  const [x1, y1] = [from.x, from.y + from.height / 2], [x2, y2] = [to.x, to.y - to.height / 2];
  const bend = Math.max(Math.abs(y2 - y1) / 2, 20);
  return `M${x1},${y1}C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`;
}
