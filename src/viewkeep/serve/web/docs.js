// The page of the HTTP interface: what the server's own description says, and a form to try each
// operation with. It loads nothing from elsewhere.

import { byId, make, announce } from "/web/dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const STREAM_SECONDS = 5; // of a feed, which has no end

const described = await (await fetch("/v1/openapi.json")).json();
// A text with what stands between backticks as code, and a paragraph's lines as one.
const prose = (text) => text.replace(/([^\n])\n(?=[^\n])/g, "$1 ").split("`")
  .map((part, at) => (at % 2 ? make("code", {}, part) : part));

byId("about").replaceChildren(...prose(described.info.description.trim()));

function resolve(schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? described.components.schemas[name] : schema ?? {};
}

// A value that a schema allows, from its examples and defaults: what a form begins with.
function example(given, depth = 0) {
  const schema = resolve(given);
  if (schema.examples?.length) return schema.examples[0];
  if (schema.example !== undefined) return schema.example;
  if (schema.default !== undefined) return schema.default;
  if (depth > 4) return null;
  const either = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (either) return example(either[0], depth + 1);
  if (schema.type === "object") {
    const wanted = Object.entries(schema.properties ?? {})
      .filter(([name]) => schema.required?.includes(name));
    return Object.fromEntries(wanted.map(([name, part]) => [name, example(part, depth + 1)]));
  }
  if (schema.type === "array") return [];
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 0;
  if (schema.type === "boolean") return false;
  return schema.type === "string" ? "" : null;
}

function field(parameter) {
  const schema = resolve(parameter.schema);
  const many = schema.type === "array" || schema.anyOf?.some((one) => resolve(one).type === "array");
  const begin = parameter.required ? example(parameter.schema) : "";
  const id = `f${field.next = (field.next ?? 0) + 1}`;
  const input = make("input", {
    id, value: String(begin ?? ""), required: parameter.required, "data-in": parameter.in,
    "data-name": parameter.name, "data-many": many, autocomplete: "off",
    placeholder: many ? "values, with spaces between" : null,
  });
  const star = parameter.required ? " *" : "";
  const said = parameter.description ?? schema.description;
  return make("div", { class: "field" },
    make("label", { for: id }, parameter.name + star), input,
    said ? make("small", {}, ...prose(said)) : null);
}

// The request that a form describes.
function request(path, method, form) {
  const query = new URLSearchParams();
  const headers = {};
  let address = path;
  for (const input of form.querySelectorAll("input[data-in]")) {
    const { in: place, name, many } = input.dataset;
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value === "") continue;
    else if (place === "header") headers[name] = input.value;
    else if (many !== undefined) input.value.split(/\s+/).forEach((one) => query.append(name, one));
    else query.append(name, input.value);
  }
  const body = form.querySelector("textarea")?.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const rest = query.size ? `?${query}` : "";
  return [address + rest, { method: method.toUpperCase(), headers, body }];
}

async function answer(response, stop) {
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream")) {
    const text = await response.text();
    if (!type.startsWith("application/json")) return text;
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  }
  let text = "";
  const timer = setTimeout(() => stop.abort(), STREAM_SECONDS * 1000);
  try {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
  clearTimeout(timer);
  return `${text}\n(${STREAM_SECONDS} seconds of a feed without end)`;
}

function operation(path, method, told) {
  const content = told.requestBody?.content?.["application/json"];
  const status = make("p", { class: "status", role: "status" });
  const shown = make("pre", { hidden: true, tabindex: "0" });
  const form = make("form", {},
    told.description?.includes("\n") ? make("p", {}, ...prose(told.description)) : null,
    ...(told.parameters ?? []).map(field),
    content
      ? make("textarea", { "aria-label": "Body", spellcheck: "false" },
        JSON.stringify(content.example ?? example(content.schema), null, 2))
      : null,
    make("div", {}, make("button", { type: "submit" }, "Send")), status, shown);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [address, sent] = request(path, method, form);
    const stop = new AbortController();
    status.textContent = `${sent.method} ${address} …`;
    const began = performance.now();
    try {
      const response = await fetch(address, { ...sent, signal: stop.signal });
      const text = await answer(response, stop);
      const took = Math.round(performance.now() - began);
      status.textContent = `${sent.method} ${address} → ${response.status} in ${took} ms`;
      shown.textContent = text;
    } catch (error) {
      status.textContent = `${sent.method} ${address}: ${error.message}`;
      shown.textContent = "";
    }
    shown.hidden = shown.textContent === "";
    announce(status.textContent);
  });
  return make("details", { "data-find": `${method} ${path} ${told.description ?? ""}`.toLowerCase() },
    make("summary", {},
      make("span", { class: "method", "data-method": method }, method.toUpperCase()),
      make("code", {}, path),
      make("span", { class: "said" }, (told.description ?? told.summary ?? "").split("\n")[0])),
    form);
}

const groups = new Map();
for (const [path, methods] of Object.entries(described.paths)) {
  for (const method of METHODS.filter((one) => methods[one])) {
    const group = methods[method].tags?.[0] ?? "other";
    groups.set(group, [...(groups.get(group) ?? []), operation(path, method, methods[method])]);
  }
}
byId("groups").append(...[...groups].map(([name, found]) =>
  make("div", {}, make("h2", {}, name), ...found)));

byId("find").addEventListener("input", ({ target }) => {
  const wanted = target.value.trim().toLowerCase();
  for (const group of byId("groups").children) {
    let some = false;
    for (const one of group.querySelectorAll("details")) {
      one.hidden = !one.dataset.find.includes(wanted);
      some ||= !one.hidden;
    }
    group.hidden = !some;
  }
});
