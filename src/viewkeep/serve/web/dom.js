// Making elements: `make("p", { class: "note" }, "text", child)`. Text always goes in as text,
// never as HTML, so nothing that stands in a database can become part of the page's code.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (name, attributes, ...children) =>
  fill(document.createElement(name), attributes, children);

export const draw = (name, attributes, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

export const byId = (id) => document.getElementById(id);

// A table of rows; `columns` are { name, number }. Cells are strings, null for NULL, or elements.
export function table(caption, columns, rows, { heads = false } = {}) {
  const kind = (column) => (column.number ? "number" : null);
  return make(
    "table",
    {},
    make("caption", { class: "unseen" }, caption),
    make(
      "thead",
      {},
      make("tr", {}, ...columns.map((c) => make("th", { scope: "col", class: kind(c) }, c.name))),
    ),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, at) => {
      if (heads && at === 0) return make("th", { scope: "row" }, value);
      if (value === null) return make("td", { class: "null" }, "NULL");
      const title = typeof value === "string" && value.length > 40 ? value : null;
      return make("td", { class: kind(columns[at]) || "cell", title }, value);
    })))),
  );
}

// Says something to those who listen rather than look.
export function announce(text) {
  byId("announce").textContent = text;
}
