// Search in pages that are opened as files: browsers start no worker from a file, so the worker's
// script runs in a hidden frame of the page. Pages from a server keep the browser's own workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      const put = (parent, script) => {
        const element = inside.document.createElement("script");
        return new Promise((resolve, reject) => {
          Object.assign(element, { src: script, async: false, onload: resolve, onerror: reject });
          parent.append(element);
        });
      };
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...scripts) =>
        Promise.all(scripts.map((script) => put(inside.document.head, new URL(script, url).href)));
      this.ready = put(inside.document.body, url);
    }
    postMessage(data) {
      const event = () => new this.frame.contentWindow.MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(event()));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
