// How an error is shown: what went wrong, and what would work.

import { make } from "./dom.js";

export const bad = (error) => make("div", { class: "message bad", role: "alert" },
  make("p", {}, error.message),
  error.hint ? make("p", { class: "hint" }, `${error.hint.replace(/[.?!]?$/, (end) => end || ".")}`) : null);
