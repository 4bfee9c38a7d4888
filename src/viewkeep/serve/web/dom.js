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

// A link to the page of a view. What is being loaded to replace a view is on that view's page.
export const viewLink = (name) =>
  make("a", { href: `/views/${encodeURIComponent(name.replace(/ \(new\)$/, ""))}` }, name);

// A table of rows; `columns` are { name, number }. Cells are strings, null for NULL, or elements.
// One that `stacks` shows each row as a card on a phone, with the columns' names beside the values.
export function table(caption, columns, rows, { heads = false, stacks = false } = {}) {
  const kind = (column) => (column.number ? "number" : null);
  return make(
    "table",
    { class: stacks ? "stacks" : null },
    make("caption", { class: "unseen" }, caption),
    make(
      "thead",
      {},
      make("tr", {}, ...columns.map((c) => make("th", { scope: "col", class: kind(c) }, c.name))),
    ),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, at) => {
      if (heads && at === 0) return make("th", { scope: "row" }, value);
      const told = { "data-label": stacks ? columns[at].name : null };
      if (value === null) return make("td", { ...told, class: "null" }, "NULL");
      const title = typeof value === "string" && value.length > 40 ? value : null;
      return make("td", { ...told, class: kind(columns[at]) || "cell", title, "data-empty": stacks && value === "–" }, value);
    })))),
  );
}

// Says something to those who listen rather than look.
export function announce(text) {
  byId("announce").textContent = text;
}
