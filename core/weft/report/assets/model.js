// The data of the page, and questions about it. Every op is known by its graph and its place there.

const data = await unpacked(document.getElementById("data").textContent);

/* The data of a page: JSON, compressed, as text. */
async function unpacked(text) {
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let n = 0; n < packed.length; n++) bytes[n] = packed.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/* An op as an object, of what it says of itself in all graphs and what is its own in one. */
function expanded([head, args, id, of = -1, body = null]) {
  return { ...data.heads[head], args, id, of, body: body && { ...body, ops: body.ops.map(expanded) } };
}

for (const graph of data.graphs || []) {
  const records = graph.ops;
  let ops = null;
  if (records) Object.defineProperty(graph, "ops", { get: () => (ops ||= records.map(expanded)) });
}

const CLASSES = [
  "matrix product, convolution", "fused", "reduction", "elementwise", "movement", "other",
  "workspace",
];

function classOf(name) {
  return `kind${CLASSES.indexOf(name)}`;
}

function typeText(number) {
  return data.types[number];
}

const texts = new Map();

function lineText(location) {
  const [file, line] = data.locations[location];
  if (!texts.has(file)) texts.set(file, new Map(data.files[file].lines));
  return (texts.get(file).get(line) || "").trim();
}

function placeText(location) {
  const [file, line] = data.locations[location];
  return `${data.files[file].name}:${line}`;
}

/* The function of the user's around a line, or the file. */
function functionText(location) {
  const [file, , name] = data.locations[location];
  return name || data.files[file].name;
}

/* An op's scope, or the function that its line is in. */
function whereText(op) {
  return op.scope || functionText(op.line);
}

function opTitle(op) {
  if (op.role === "constant") return op.value === "..." ? "constant" : shortened(op.value, 18);
  if (op.role === "input" || op.role === "state") return op.name;
  if (op.title !== undefined) return op.title || "kernel";
  return op.kind;
}

function opCalled(graph, place) {
  const op = data.graphs[graph].ops[place];
  if (op.role === "result") {
    return opCalled(graph, op.args[0]) + (op.index === undefined ? "" : `, result ${op.index}`);
  }
  if (op.role === "state") return `state ${op.name}`;
  if (op.role === "input") return `input ${op.name}`;
  return op.name ? `${opTitle(op)} ${op.name}` : opTitle(op);
}

const identities = new Map();

/* The places of the ops of a graph by identity; an op in a kernel is where the kernel is. */
function placesIn(number) {
  if (!identities.has(number)) {
    const places = new Map();
    (data.graphs[number].ops || []).forEach((op, place) => {
      if (op.role === "result") return;
      for (const each of [op, ...(op.body ? op.body.ops : [])]) {
        if (!places.has(each.id)) places.set(each.id, []);
        if (!places.get(each.id).includes(place)) places.get(each.id).push(place);
      }
    });
    identities.set(number, places);
  }
  return identities.get(number);
}

/* The identities of an op: its own, and those of a kernel's ops. */
function identitiesOf(op) {
  return op.body ? op.body.ops.map((each) => each.id) : [op.id];
}

const planned = (data.plans || []).map(({ graph, steps }) => ({ graph, steps: new Set(steps) }));

/* The steps that compute an op of any graph, each as a graph and a place. */
function stepsOf(number, op, place) {
  return planned.flatMap(({ graph, steps }) => {
    const places = graph === number ? [place]
      : identitiesOf(op).flatMap((id) => placesIn(graph).get(id) || []);
    return [...new Set(places)].filter((each) => steps.has(each))
      .map((each) => ({ graph, place: each }));
  });
}

/* The place of what a value is drawn as: an op itself, or the op that it is one result of. */
function drawnAs(graph, place) {
  const op = graph.ops[place];
  return op.role === "result" ? drawnAs(graph, op.args[0]) : place;
}

const users = new Map();

function usersOf(number, place) {
  if (!users.has(number)) {
    const graph = data.graphs[number];
    const found = graph.ops.map(() => []);
    graph.ops.forEach((op, user) => {
      if (op.role === "result") return;
      for (const arg of new Set(op.args || [])) {
        found[drawnAs(graph, arg)].push(user);
        if (drawnAs(graph, arg) !== arg) found[arg].push(user);
      }
    });
    users.set(number, found);
  }
  return users.get(number)[place];
}

/* The user's lines of an op: its own, and those of a kernel's ops. */
function locationsOf(op) {
  const inside = op.body ? op.body.ops.map((each) => each.line) : [];
  return [...new Set(inside.length ? inside : [op.line])];
}

/* The stages of each graph that went through the passes, the program's own graph first. */
function stagesOf(pipeline, isFirst) {
  const stages = pipeline.stages.map((stage, number) => ({ ...stage, number }));
  stages[0] = { ...stages[0], name: "captured" };
  if (!isFirst) return stages;
  if (data.captured !== stages[0].graph) {
    stages[0].name = "calls prepared";
    stages.unshift({ name: "captured", graph: data.captured });
  }
  return [...stages, { name: "planned", graph: data.plans[0].graph, plan: 0 }];
}

const pipelines = (data.pipelines || []).map((pipeline, number) => ({
  name: pipeline.name, stages: stagesOf(pipeline, number === 0),
}));

/* The blocks of memory that an op of a planned graph makes. */
function blocksOf(graph, place) {
  return (data.plans || []).flatMap((plan, number) => plan.graph !== graph ? [] : plan.blocks
    .map((block, index) => ({ ...block, plan: number, index }))
    .filter((block) => plan.steps[block.step] === place));
}

const rows = new Map();
if (data.plans && data.profile) {
  data.profile.rows.forEach((row, number) => row.steps.forEach(([plan, step]) => {
    const key = `${data.plans[plan].graph} ${data.plans[plan].steps[step]}`;
    rows.set(key, [...(rows.get(key) || []), number]);
  }));
}

/* The rows of the profile that compute a step: an op of a planned graph. */
function rowsOf(graph, place) {
  return rows.get(`${graph} ${place}`) || [];
}

/* The time of some steps, and their share of a call; empty without a profile. */
function timeText(steps) {
  const found = new Set(steps.flatMap(({ graph, place }) => rowsOf(graph, place)));
  if (!found.size) return "";
  const seconds = [...found].reduce((sum, row) => sum + data.profile.rows[row].seconds, 0);
  return `${secondsText(seconds)}, ${shareText(seconds)}`;
}

function shareText(seconds) {
  const share = 100 * seconds / data.profile.wall;
  return `${share.toFixed(share < 1 ? 2 : 1)} % of the call`;
}

/* What an op computes, for each of its steps, and what no step does: one that was removed, or one
   that its backend does not take apart. Each step has the parts of the kinds that it computes. */
function partsOf(op, steps) {
  const waiting = steps.map(({ graph, place }) => {
    const step = data.graphs[graph].ops[place];
    return (step.body ? step.body.ops : [step]).filter(({ id }) => id === op.id).map(({ kind }) => kind);
  });
  const computed = steps.map(() => []), others = [];
  for (const part of op.parts || []) {
    const numbers = new Set();
    for (const kind of part[2]) {
      const number = waiting.findIndex((kinds) => kinds.includes(kind));
      if (number < 0) continue;
      waiting[number].splice(waiting[number].indexOf(kind), 1);
      numbers.add(number);
    }
    if (!numbers.size) others.push(part);
    for (const number of numbers) computed[number].push(part);
  }
  return { computed, others };
}

/* The places of the ops that a drawing of a graph has. */
function drawnIn(number) {
  const found = [], waiting = [...(data.graphs[number].items || [])];
  while (waiting.length) {
    const item = waiting.pop();
    if (typeof item === "number") found.push(item);
    else waiting.push(...item.items);
  }
  return found;
}

/* The outermost scopes of a graph whose paths have all of some words, each with the number of its
   ops, and the place of one: one that is not of a gradient, if there is any. */
function scopesWith(terms, graph) {
  const { ops } = data.graphs[graph], scopes = new Map();
  const isFound = (path) => terms.every((term) => `${path}/`.toLowerCase().includes(term));
  const isBackward = (place) => ops[place].of >= 0;
  const places = drawnIn(graph).filter((place) => ops[place].scope && !ops[place].role);
  places.sort((one, other) => isBackward(one) - isBackward(other) || one - other);
  for (const place of places) {
    const names = ops[place].scope.split("/");
    const paths = names.map((_, depth) => names.slice(0, depth + 1).join("/"));
    const scope = paths.find(isFound);
    if (scope === undefined) continue;
    if (!scopes.has(scope)) scopes.set(scope, { graph, place, scope, depth: paths.indexOf(scope), count: 0 });
    scopes.get(scope).count++;
  }
  return [...scopes.values()];
}

/* What a search finds: scopes and ops of the first of some graphs that has any, and the user's
   lines. Ops are found by words of scopes, names, kinds, types and functions, or by line. */
function searched(words, numbers) {
  const wanted = words.toLowerCase().trim();
  if (!wanted) return [];
  const terms = wanted.split(/\s+/);
  const line = /^(?:(.*?):|line\s+)?(\d+)$/.exec(wanted);
  const atLine = (location) => {
    if (!line) return false;
    const [file, own] = data.locations[location];
    return own === Number(line[2]) &&
      (!line[1] || data.files[file].name.toLowerCase().includes(line[1]));
  };
  const isAsked = (text) => terms.some((term) => text.toLowerCase().includes(term));
  const isNamed = ({ op }) => isAsked(opTitle(op));
  const opsIn = (graph) => drawnIn(graph)
    .map((place) => ({ graph, place, op: data.graphs[graph].ops[place] }))
    .filter(({ op }) => {
      const parts = (op.parts || []).map(([kind]) => kind).join(" ");
      const text = [op.scope, op.name, opTitle(op), op.kind, typeText(op.type), parts,
        functionText(op.line), op.of >= 0 ? "gradient" : ""].join(" ").toLowerCase();
      return terms.every((term) => text.includes(term)) || locationsOf(op).some(atLine);
    })
    .map((found) => isNamed(found) ? found
      : { ...found, part: ((found.op.parts || []).find(([kind]) => isAsked(kind)) || [])[0] })
    .sort((one, other) => (one.op.of >= 0) - (other.op.of >= 0) ||
      isNamed(other) - isNamed(one) || one.place - other.place);
  let found = [];
  for (const number of numbers) {
    if (!found.length) found = [...scopesWith(terms, number), ...opsIn(number)];
  }
  const lines = data.locations.map((_, location) => location).filter((location) =>
    atLine(location) || placeText(location).toLowerCase().includes(wanted) ||
    lineText(location).toLowerCase().includes(wanted));
  return [...found, ...lines.map((location) => ({ location }))];
}
