// Asks before something is lost: a dialog with what would go, which Enter alone does not send off.

import { byId, make } from "./dom.js";

// Whether somebody agrees. `statements` are what would be run.
export function agreed(statements) {
  const dialog = byId("asking");
  const cancel = make("button", { value: "no", autofocus: true }, "Cancel");
  dialog.replaceChildren(make("form", { method: "dialog" },
    make("h2", { id: "asking-title" }, "This cannot be taken back"),
    ...statements.map((text) => make("pre", {}, text)),
    make("div", { class: "choices" }, cancel, make("button", { value: "yes", class: "danger" }, verb(statements)))));
  dialog.returnValue = "no";
  dialog.showModal();
  cancel.focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}

const verb = (statements) => (statements.every((text) => /^drop/i.test(text)) ? "Drop" : "Run");
