// The SQL box: runs a statement, or explains how a query would be kept.

import { send } from "./api.js";
import { agreed } from "./asking.js";
import { announce, byId, make, table } from "./dom.js";
import { count, plural } from "./format.js";
import { bad } from "./told.js";

export const EXAMPLE = `CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter));
CREATE VIEW scores AS
  SELECT story, COUNT(*) AS votes, AVG(stars) AS mean FROM votes GROUP BY story;
INSERT INTO votes VALUES (1, 'ann', 5), (1, 'bob', 3), (2, 'ann', 4);`;

// Runs SQL, after asking if it drops something; null if the answer was no.
export async function run(sql, explain = false) {
  const found = await send("/dashboard/sql", { sql, explain });
  if (!found.ask) return found;
  return (await agreed(found.ask)) ? send("/dashboard/sql", { sql, explain, sure: true }) : null;
}

export class Sql {
  constructor({ onDone }) {
    this.onDone = onDone;
    byId("sql-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run(false);
    });
    byId("sql-explain").addEventListener("click", () => this.run(true));
    byId("sql-text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run(event.shiftKey);
      }
    });
    byId("first-example").addEventListener("click", () => this.fill(EXAMPLE));
  }

  fill(text) {
    byId("sql-text").value = text;
    byId("sql-text").focus();
  }

  // A statement to begin with, while the box is untouched.
  suggest(name) {
    const box = byId("sql-text");
    if (!box.value && name) box.value = `SELECT * FROM ${name} LIMIT 10`;
  }

  async run(explain) {
    const sql = byId("sql-text").value.trim();
    const out = byId("sql-out");
    if (!sql) return;
    byId("sql-note").textContent = "…";
    try {
      const found = await run(sql, explain);
      if (found === null) {
        byId("sql-note").textContent = "nothing was run";
        return;
      }
      if (explain) out.replaceChildren(make("pre", {}, found.explain));
      else this.show(found);
      if (explain) byId("sql-note").textContent = "how it would be kept";
      announce(byId("sql-note").textContent);
      if (!explain) this.onDone();
    } catch (error) {
      byId("sql-note").textContent = "";
      out.replaceChildren(bad(error));
    }
  }

  show(found) {
    const out = byId("sql-out");
    const where = found.epoch === null ? "" : ` at epoch ${count(found.epoch)}`;
    if (found.columns.length) {
      out.replaceChildren(table("Result of the statement", found.columns, found.rows, { stacks: found.columns.length > 3 }));
      const more = found.more ? `, ${count(found.more)} more not shown` : "";
      byId("sql-note").textContent = `${plural(found.rows.length, "row")}${more}${where}${found.how ? ` · ${found.how}` : ""}`;
    } else {
      out.replaceChildren(make("p", { class: "message" }, found.message || "done"));
      byId("sql-note").textContent = "done";
    }
  }
}
