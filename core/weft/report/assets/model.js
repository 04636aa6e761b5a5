// The data of the page, and questions about it. Every op is known by its graph and its place there.

const data = JSON.parse(document.getElementById("data").textContent);

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

function opTitle(op) {
  if (op.role === "constant") return op.value === "..." ? "constant" : shortened(op.value, 18);
  if (op.role === "input" || op.role === "state") return op.name;
  if (op.title !== undefined) return op.title || "kernel";
  return op.kind;
}

function opCalled(graph, place) {
  const op = data.graphs[graph].ops[place];
  if (op.role === "result") return `${opCalled(graph, op.args[0])}, result ${op.index}`;
  if (op.role === "state") return `state ${op.name}`;
  if (op.role === "input") return `input ${op.name}`;
  return op.name ? `${opTitle(op)} ${op.name}` : opTitle(op);
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

/* The rows of the profile that compute a step: an op of a planned graph. */
function rowsOf(graph, place) {
  if (!data.profile) return [];
  const found = [];
  data.profile.rows.forEach((row, number) => {
    const is = row.steps.some(([plan, step]) =>
      data.plans[plan].graph === graph && data.plans[plan].steps[step] === place);
    if (is) found.push(number);
  });
  return found;
}

/* What a search finds among the ops of a graph and the user's lines: by name, or by line. */
function searched(words, number, most = 60) {
  const wanted = words.toLowerCase().trim();
  if (!wanted) return [];
  const line = /^(?:(.*?):|line\s+)?(\d+)$/.exec(wanted);
  const graph = data.graphs[number];
  const found = [];
  const atLine = (location) => {
    if (!line) return false;
    const [file, own] = data.locations[location];
    return own === Number(line[2]) &&
      (!line[1] || data.files[file].name.toLowerCase().includes(line[1]));
  };
  (graph.ops || []).forEach((op, place) => {
    if (op.role === "result") return;
    const name = `${op.name || ""} ${opTitle(op)} ${op.kind} ${typeText(op.type)}`.toLowerCase();
    if (name.includes(wanted) || locationsOf(op).some(atLine)) found.push({ place, op });
  });
  const lines = data.locations.map((_, location) => location).filter((location) =>
    atLine(location) || placeText(location).toLowerCase().includes(wanted) ||
    lineText(location).toLowerCase().includes(wanted));
  return [
    ...lines.slice(0, 20).map((location) => ({ location })),
    ...found.slice(0, most),
  ];
}
