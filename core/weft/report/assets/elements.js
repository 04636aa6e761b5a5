// Elements of the page. Text from the data becomes text nodes and attributes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
}

function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", ...attributes, onclick }, text);
}

function titled(title, ...content) {
  return element("section", { class: "block" }, element("h3", {}, title), ...content);
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return element("dl", {}, shown.flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", {}, value),
  ]));
}

/* A table whose columns sort when their heads are clicked.
   A column has a title, a value to sort by and to show, and may have `show`, which makes a cell's
   content, and `text` for columns of text, which sort upwards first. */
function sortedTable(columns, rows, { onpick, by = 0, label, row: rowClass } = {}) {
  const body = element("tbody");
  let sorted = by, downwards = !columns[by].text;
  const heads = columns.map((column, number) => element(
    "th", { scope: "col", class: column.text ? "" : "number" },
    button(column.title, () => {
      downwards = sorted === number ? !downwards : !column.text;
      sorted = number;
      show();
    }, { title: column.hint }),
  ));
  function show() {
    const { value } = columns[sorted];
    const order = rows.map((row, place) => [value(row), place]);
    order.sort(([one, a], [other, b]) => {
      const least = one < other ? -1 : one > other ? 1 : 0;
      return (downwards ? -least : least) || a - b;
    });
    body.replaceChildren(...order.map(([, place]) => line(rows[place], place)));
    heads.forEach((head, number) => {
      const direction = downwards ? "descending" : "ascending";
      head.setAttribute("aria-sort", number === sorted ? direction : "none");
    });
  }
  function line(row, place) {
    const pick = onpick && (() => onpick(row, place));
    return element("tr", {
      "data-row": place, class: rowClass && rowClass(row, place), tabindex: pick ? 0 : undefined,
      onclick: pick,
      onkeydown: pick && ((event) => event.key === "Enter" && pick()),
    }, columns.map((column) => element(
      "td", { class: column.text ? column.class : "number" },
      column.show ? column.show(row) : column.value(row),
    )));
  }
  show();
  return element("table", { "aria-label": label },
    element("thead", {}, element("tr", {}, heads)), body);
}

function bytesText(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${threeDigits(count / size)} ${unit}`;
  }
  return `${count} B`;
}

function secondsText(seconds) {
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (Math.abs(seconds) >= size) return `${threeDigits(seconds / size)} ${unit}`;
  }
  return `${threeDigits(seconds * 1e9)} ns`;
}

function threeDigits(value) {
  return value >= 1000 ? Math.round(value).toLocaleString("en") : `${Number(value.toPrecision(3))}`;
}

function counted(count, noun, nouns = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}

function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function widthOf(text, font) {
  const key = `${font}\n${text}`;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}
