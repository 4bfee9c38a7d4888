// The live stream of the server, as every page shows it: the lamp above, the notice if nothing moves,
// and the news for the page's own parts.

import { follow } from "./api.js";
import { announce, byId } from "./dom.js";
import { count, duration } from "./format.js";

// Work that a passing trouble of the server may break; the next event does it again.
export const lightly = (work) => work().catch((error) => console.debug(error.message));

export class Live {
  // `refresh` looks at the database again; `epoch` is called for each new one after the first.
  constructor({ refresh, epoch }) {
    Object.assign(this, { refresh, epoch });
    this.last = null; // the sample before
    this.url = "";
    this.driver = undefined; // who drove when we looked last; undefined before the first look
  }

  // What the database is called; for the bar and for what is told.
  named(url, version) {
    this.url = url.replace(/^lmdb:/, "");
    const short = this.url.split("/").at(-1);
    byId("where").textContent = short;
    byId("where").title = url;
    byId("version").textContent = version;
    return short;
  }

  start({ begin, sample, figures }) {
    follow("/dashboard/live", {
      open: () => {
        this.stand("fresh", "Connected");
        if (byId("notice").dataset.kind === "lost") {
          byId("notice").hidden = true;
          announce("The server answers again");
        }
        lightly(begin);
      },
      lost: () => {
        const text = "The server does not answer. Trying again …";
        this.stand("lost", "No connection");
        const notice = byId("notice");
        notice.dataset.kind = "lost";
        notice.hidden = false;
        if (notice.textContent !== text) notice.textContent = text;
      },
      sample: (found) => {
        this.told(found);
        sample(found);
      },
      figures,
    });
  }

  stand(state, text) {
    byId("stand").dataset.state = state;
    byId("stand-text").textContent = text;
  }

  told(sample) {
    const before = this.last;
    this.last = sample;
    const epoch = `Epoch ${count(sample.epoch)}`;
    if (!sample.driver) this.stand(sample.lag ? "behind" : "idle", `${epoch} · no pipeline`);
    else if (sample.lag && sample.lag_seconds > 5) this.stand("behind", `${epoch} · ${duration(sample.lag_seconds)} behind`);
    else this.stand("fresh", `${epoch} · ${sample.lag ? "following" : "up to date"}`);
    this.remind(sample);
    const changed = !before || before.epoch !== sample.epoch;
    if (!before || changed || before.plan !== sample.plan || sample.loading) lightly(this.refresh);
    if (before && changed) this.epoch(sample);
  }

  // What somebody should know who wonders why nothing moves.
  remind(sample) {
    const notice = byId("notice");
    const idle = !sample.driver && (sample.lag > 0 || sample.loading > 0);
    const needed = idle || sample.trouble !== null;
    notice.hidden = !needed;
    const text = sample.trouble !== null ? `Views do not follow what is written: ${sample.trouble}`
      : `No pipeline runs, so views do not follow what is written. Start one: viewkeep run ${this.url}`;
    if (needed && notice.textContent !== text) {
      notice.dataset.kind = "driver";
      notice.textContent = text;
    }
    if (this.driver !== undefined && this.driver !== sample.driver) {
      announce(sample.driver ? `The pipeline runs: ${sample.driver}` : "The pipeline has stopped");
    }
    this.driver = sample.driver;
  }
}
