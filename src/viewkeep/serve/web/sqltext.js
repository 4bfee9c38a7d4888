// SQL with its words and texts in colour. Gives nodes, so that nothing in it is taken for HTML.

import { make } from "./dom.js";

const PARTS = /('(?:[^']|'')*')|\b(select|from|where|group|by|order|having|limit|offset|join|left|right|full|inner|outer|cross|semi|anti|on|using|as|and|or|not|in|is|null|exists|between|like|case|when|then|else|end|union|all|intersect|except|distinct|with|over|partition|rows|range|qualify|create|view|table|primary|key|insert|into|values|update|set|delete|asc|desc|filter|within|interval|cast)\b/gi;

export function colored(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(PARTS)) {
    nodes.push(text.slice(end, match.index));
    nodes.push(make("span", { class: match[1] ? "text" : "word" }, match[0]));
    end = match.index + match[0].length;
  }
  nodes.push(text.slice(end));
  return nodes;
}
